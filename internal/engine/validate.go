package engine

import (
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Start positions (Config.StartPosition).
const (
	StartEarliest  = "earliest"
	StartLatest    = "latest"
	StartTimestamp = "timestamp"
)

var aliasForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// validate fills in what may be left out and answers an error that names the first bad member.
func (c *Config) validate() error {
	bad := func(member, format string, args ...any) error {
		return fmt.Errorf("engine: Config.%s %s", member, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Identity.FlowID == "":
		return bad("Identity.FlowID", "is empty")
	case c.Identity.Tasks < 1 || c.Identity.Task < 0 || c.Identity.Task >= c.Identity.Tasks:
		return bad("Identity.Task", "is %d of %d", c.Identity.Task, c.Identity.Tasks)
	case !aliasForm.MatchString(c.SourceAlias):
		return bad("SourceAlias", "%q is not 1 to 64 letters, digits, '.', '_' or '-'", c.SourceAlias)
	case !aliasForm.MatchString(c.TargetAlias):
		return bad("TargetAlias", "%q is not 1 to 64 letters, digits, '.', '_' or '-'", c.TargetAlias)
	case c.SourceAlias == c.TargetAlias:
		return bad("TargetAlias", "%q is the source's alias too", c.TargetAlias)
	case c.Separator == "":
		return bad("Separator", "is empty")
	case c.Source.Credentials == nil:
		return bad("Source.Credentials", "is nil")
	case c.Target.Credentials == nil:
		return bad("Target.Credentials", "is nil")
	case c.Sink == nil:
		return bad("Sink", "is nil")
	case c.ReplicationFactor == 0 || c.ReplicationFactor < -1:
		return bad("ReplicationFactor", "is %d; give -1 for the target's default", c.ReplicationFactor)
	case c.OffsetLagMax < 0:
		return bad("OffsetLagMax", "is %d", c.OffsetLagMax)
	}
	switch c.StartPosition {
	case "":
		c.StartPosition = StartEarliest
	case StartEarliest, StartLatest:
	case StartTimestamp:
		if c.StartTimestamp.IsZero() {
			return bad("StartTimestamp", "is needed with StartPosition timestamp")
		}
	default:
		return bad("StartPosition", "%q is not earliest, latest or timestamp", c.StartPosition)
	}
	for _, iv := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"RefreshTopicsInterval", &c.RefreshTopicsInterval, 5 * time.Second},
		{"RefreshGroupsInterval", &c.RefreshGroupsInterval, 5 * time.Second},
		{"EmitCheckpointsInterval", &c.EmitCheckpointsInterval, 5 * time.Second},
		{"EmitHeartbeatsInterval", &c.EmitHeartbeatsInterval, time.Second},
		{"SyncInterval", &c.SyncInterval, time.Minute},
	} {
		if *iv.v < 0 {
			return bad(iv.name, "is %s", *iv.v)
		}
		if *iv.v == 0 {
			*iv.v = iv.def
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	c.Source.Side, c.Target.Side = sideSource, sideTarget
	return nil
}
