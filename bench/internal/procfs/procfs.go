// Package procfs reads what the kernel knows of processes: processor time, memory, connections. Linux only.
//
// It must never signal a process. Start with Tree.
package procfs

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Tree is a process and its descendants. The descendants are looked for at NewTree and Refresh only.
type Tree struct{ pids []int }

// NewTree returns the tree below pid.
func NewTree(pid int) *Tree {
	t := &Tree{pids: []int{pid}}
	t.Refresh()
	return t
}

// Refresh looks for descendants again. One that has ended takes its share out of CPU.
func (t *Tree) Refresh() {
	all := []int{t.pids[0]}
	for i := 0; i < len(all); i++ {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		if err != nil {
			continue // the pattern is right; there is no other error
		}
		for _, list := range lists {
			text, err := os.ReadFile(list)
			if err != nil {
				continue // a thread that has ended meanwhile
			}
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	t.pids = all
}

// CPU is the processor time of all threads, user and system, also of threads that have ended. The clock is the one behind
// utime and stime in /proc/<pid>/stat, which are the same rounded to 10 ms.
func (t *Tree) CPU() (time.Duration, error) {
	var sum time.Duration
	for i, pid := range t.pids {
		d, err := cpuClock(pid)
		if err != nil {
			if i > 0 {
				continue // a descendant that has ended
			}
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// cpuClock reads a process's CPU clock; its number is made of the process id (clock_getcpuclockid(3)).
func cpuClock(pid int) (time.Duration, error) {
	const wholeProcess, schedulerTime = 0, 2
	var ts syscall.Timespec
	clock := int32(^pid)<<3 | wholeProcess | schedulerTime
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, errno)
	}
	return time.Duration(ts.Nano()), nil
}

// SystemShare is the share of a process's processor time that the kernel used on its behalf, descendants not counted. The
// kernel's own resolution is 10 ms.
func SystemShare(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return parseStat(string(text))
}

// parseStat finds utime and stime, the fields 14 and 15. The second field, the name, may hold anything and ends with the
// last bracket.
func parseStat(text string) (float64, error) {
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("a process's stat is %q", text)
	}
	user, err := strconv.ParseFloat(f[11], 64)
	system, also := strconv.ParseFloat(f[12], 64)
	if err := errors.Join(err, also); err != nil {
		return 0, fmt.Errorf("a process's stat: %w", err)
	}
	if user+system == 0 {
		return 0, nil
	}
	return system / (user + system), nil
}

// Memory is resident memory in bytes.
type Memory struct{ Now, Peak int64 }

// Memory sums VmRSS and VmHWM. The peaks of several processes need not have been at one time; the sum is a bound.
func (t *Tree) Memory() (Memory, error) {
	var sum Memory
	for i, pid := range t.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			if i > 0 && errors.Is(err, os.ErrNotExist) {
				continue
			}
			return Memory{}, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		m, err := parseStatus(text)
		if err != nil {
			return Memory{}, fmt.Errorf("process %d: %w", pid, err)
		}
		sum.Now += m.Now
		sum.Peak += m.Peak
	}
	return sum, nil
}

func parseStatus(text []byte) (Memory, error) {
	var m Memory
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &m.Now, "VmHWM": &m.Peak}[name]
		if into == nil {
			continue
		}
		kb, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		n, err := strconv.ParseInt(kb, 10, 64)
		if !ok || err != nil {
			return Memory{}, fmt.Errorf("%s is %q", name, strings.TrimSpace(value))
		}
		*into = n << 10
	}
	if m.Peak == 0 {
		return Memory{}, errors.New("no VmHWM: the process has ended")
	}
	return m, nil
}

// Connections counts the established TCP connections of the process itself by remote address.
func (t *Tree) Connections() (map[netip.AddrPort]int, error) {
	pid := t.pids[0]
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			ours[strings.TrimSuffix(inode, "]")] = true
		}
	}
	out := map[netip.AddrPort]int{}
	for _, name := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, name))
		if errors.Is(err, os.ErrNotExist) && name == "tcp6" {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the connections of process %d: %w", pid, err)
		}
		list, err := parseTCP(text)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			if ours[c.inode] {
				out[c.remote]++
			}
		}
	}
	return out, nil
}

type connection struct {
	remote netip.AddrPort
	inode  string
}

// parseTCP returns the established connections of a /proc/net/tcp or tcp6.
func parseTCP(text []byte) ([]connection, error) {
	const established = "01"
	var out []connection
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Scan() // the heading
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			return nil, fmt.Errorf("a line of /proc/net/tcp is %q", lines.Text())
		}
		if f[3] != established {
			continue
		}
		remote, err := parseAddr(f[2])
		if err != nil {
			return nil, err
		}
		out = append(out, connection{remote: remote, inode: f[9]})
	}
	return out, lines.Err()
}

// parseAddr reads an address as the kernel prints it: words of 32 bits in the machine's order (little endian on all
// machines that this runs on), a colon, the port.
func parseAddr(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	p, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("an address of /proc/net/tcp is %q", s)
	}
	for i := 0; i < len(raw); i += 4 {
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("an address of /proc/net/tcp is %q", s)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(p)), nil
}
