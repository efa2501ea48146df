package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// logBytes sums the .log files of the topic's partitions in a broker's data folder.
func logBytes(dataDir, topic string) (int64, error) {
	files, err := filepath.Glob(filepath.Join(dataDir, topic+"-*", "*.log"))
	if err != nil {
		return 0, fmt.Errorf("topic %q: %w", topic, err)
	}
	var sum int64
	for _, f := range files {
		// Another topic's name may begin with this one's and a dash.
		partition := strings.TrimPrefix(filepath.Base(filepath.Dir(f)), topic+"-")
		if _, err := strconv.Atoi(partition); err != nil {
			continue
		}
		info, err := os.Stat(f)
		if err != nil {
			return 0, fmt.Errorf("size of a log: %w", err)
		}
		sum += info.Size()
	}
	return sum, nil
}
