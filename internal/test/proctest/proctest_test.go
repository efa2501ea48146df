package proctest

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mirrorflow/mirrorflow/internal/test/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const devCommand = "cmd/mirrorflow-dev"

func TestACommandIsBuiltAndRun(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Pkg: devCommand, Args: []string{"free-port", "2"}})
	require.NoError(t, p.ExitErr(t, 10*time.Second))
	ports := p.WaitMatch(t, `^(\d+)\n(\d+)\n$`, 10*time.Second)
	require.NotEqual(t, ports[1], ports[2])

	bad := Start(t, Options{Pkg: devCommand, Args: []string{"nonsense"}})
	var exit *exec.ExitError
	require.ErrorAs(t, bad.ExitErr(t, 10*time.Second), &exit)
	require.Equal(t, 1, exit.ExitCode())
	bad.WaitMatch(t, `unknown command "nonsense"`, 10*time.Second)
}

func TestAServerInTheForegroundEndsWithItsHelperHoweverThatEnds(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		end  func(t *testing.T, p *Process)
	}{
		{"sigterm", func(t *testing.T, p *Process) { p.Stop(t) }},
		{"kill", func(t *testing.T, p *Process) { p.Kill9(t) }},
		{"interrupt, on the data of the killed one", func(t *testing.T, p *Process) {
			p.Signal(t, syscall.SIGINT)
			require.NoError(t, p.ExitErr(t, 20*time.Second))
		}},
	}
	dir := t.TempDir()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			p := Start(t, Options{Pkg: devCommand, Args: []string{"postgres", "--dir", filepath.Join(dir, "pg")}})
			port := p.WaitMatch(t, `ready postgres postgres://postgres@127\.0\.0\.1:(\d+)/`, 30*time.Second)[1]
			_, err := strconv.Atoi(port)
			require.NoError(t, err)
			tc.end(t, p)
			wait.For(t, 10*time.Second, "the server's end", func() error {
				_, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
				if err == nil {
					return errors.New("it still listens")
				}
				return nil
			})
		})
	}
}
