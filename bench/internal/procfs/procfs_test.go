package procfs

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheClockOfAProcessIsItsProcessorTime(t *testing.T) {
	t.Parallel()
	tree := NewTree(os.Getpid())
	before, err := tree.CPU()
	require.NoError(t, err)
	begin, x := time.Now(), 0
	for time.Since(begin) < 50*time.Millisecond {
		x++
	}
	after, err := tree.CPU()
	require.NoError(t, err)
	require.Positive(t, x)
	require.Greater(t, after, before)
	_, err = NewTree(1 << 22).CPU()
	require.Error(t, err, "no such process")
}

func TestATreeHoldsTheChildren(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	tree := NewTree(os.Getpid())
	require.Contains(t, tree.pids, child.Process.Pid)
	m, err := tree.Memory()
	require.NoError(t, err)
	require.Positive(t, m.Now)
	require.GreaterOrEqual(t, m.Peak, m.Now)
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
	tree.Refresh()
	require.NotContains(t, tree.pids, child.Process.Pid)
}

func TestConnectionsAreCountedByRemoteAddress(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	for range 3 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	got, err := NewTree(os.Getpid()).Connections()
	require.NoError(t, err)
	require.Equal(t, 3, got[netip.MustParseAddrPort(listener.Addr().String())])
}

func TestStatusIsReadInBytes(t *testing.T) {
	t.Parallel()
	m, err := parseStatus([]byte("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n"))
	require.NoError(t, err)
	require.Equal(t, Memory{Now: 1 << 20, Peak: 2 << 20}, m)
	_, err = parseStatus([]byte("Name:\tx\nState:\tZ (zombie)\n"))
	require.Error(t, err)
	_, err = parseStatus([]byte("VmHWM:\t lots\n"))
	require.Error(t, err)
}

func TestOnlyEstablishedConnectionsCount(t *testing.T) {
	t.Parallel()
	list, err := parseTCP([]byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n" +
		"   1: 0100007F:A001 0100007F:4A38 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0\n" +
		"   2: 0000000000000000FFFF00000100007F:A002 0000000000000000FFFF00000100007F:4A38 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0\n"))
	require.NoError(t, err)
	at := netip.MustParseAddrPort("127.0.0.1:19000")
	require.Equal(t, []connection{{at, "12"}, {at, "13"}}, list)
	_, err = parseTCP([]byte("head\nshort line\n"))
	require.Error(t, err)
}

func TestTheShareOfTheKernelIsRead(t *testing.T) {
	t.Parallel()
	got, err := parseStat("77 (a (strange) name) S 1 2 3 4 5 6 7 8 9 10 300 100 0 0 20 0")
	require.NoError(t, err)
	require.InDelta(t, 0.25, got, 1e-9)
	got, err = parseStat("77 (new) S 1 2 3 4 5 6 7 8 9 10 0 0 0 0 20 0")
	require.NoError(t, err)
	require.Zero(t, got)
	_, err = parseStat("77 (short) S 1")
	require.Error(t, err)
	_, err = SystemShare(os.Getpid())
	require.NoError(t, err)
}
