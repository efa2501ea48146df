package wire

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocated is how many bytes f allocates. Nothing else may run, so tests that use it are not parallel.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestHostileAnswersAllocateLittleMoreThanTheirSize(t *testing.T) {
	const size = 256 << 10
	fill := func(head []byte, piece ...byte) []byte {
		for len(head) < size {
			head = append(head, piece...)
		}
		return head
	}
	huge := binary.AppendUvarint(nil, 1<<31-1)
	with := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	zeros := func(n int) []byte { return make([]byte, n) }
	// One partition, and in it as many aborted transactions as fit; the shortest are 17 bytes long.
	aborted := with(zeros(10), []byte{2}, zeros(16), []byte{2}, zeros(4+2+3*8), binary.AppendUvarint(nil, size/17))
	// No partition, and as many brokers as fit; the shortest are 11 bytes long.
	brokers := with(zeros(10), []byte{1, 1, 0}, binary.AppendUvarint(nil, size), binary.AppendUvarint(nil, size/11))
	errorRecords := with([]byte{2}, zeros(16), []byte{2}, zeros(4+2+3*8), binary.AppendUvarint(nil, size/6))
	for name, body := range map[string][]byte{
		"topics that are not there":      with(zeros(10), huge),
		"partitions that are not there":  with(zeros(10), []byte{2}, zeros(16), huge),
		"partitions without end":         fill(with(zeros(10), []byte{2}, zeros(16), binary.AppendUvarint(nil, size/37)), 0),
		"aborted transactions no end of": fill(aborted, 0),
		"brokers no end of":              fill(brokers, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0),
		"tags no end of":                 fill(with(zeros(10), []byte{1}, huge), 0),
	} {
		got := allocated(func() {
			var r FetchResponse
			_ = r.Decode(18, body, 100)
		})
		require.LessOrEqual(t, got, int64(1<<16+16*len(body)), name)
	}
	body := fill(errorRecords, 0, 0, 0, 1, 1, 0)
	got := allocated(func() {
		var r ProduceResponse
		_ = r.Decode(13, body, 100)
	})
	require.LessOrEqual(t, got, int64(1<<16+32*len(body)))
}
