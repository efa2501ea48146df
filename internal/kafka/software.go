package kafka

import (
	"runtime/debug"
	"strings"
	"sync"
)

// softwareName and softwareVersion are what brokers show of their clients.
const softwareName = "mirrorflow"

var softwareVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return versionText(info.Main.Version)
	}
	return versionText("")
})

// versionText makes a version of what brokers accept: letters, digits, dots and dashes, with a letter or digit at both
// ends.
func versionText(v string) string {
	v = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.':
			return r
		}
		return '-'
	}, v)
	if v = strings.Trim(v, "-."); v == "" {
		return "devel"
	}
	return v
}
