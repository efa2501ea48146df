// Package freeport picks TCP ports on loopback for servers that must be told their port before they start.
//
// It owns the choice and its locks between processes. It must never hand out a port twice while the process that asked
// for it lives. Start with Take.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Ports below the range from which the kernel serves outgoing connections: such a port stays free for us across a
// server's restart, while one from that range may be taken by any client connection in between.
const (
	lowest  = 15000
	highest = 30000
)

// Take returns n different ports of 127.0.0.1 that nobody listens on. They stay reserved towards other callers of Take,
// in this and in other processes of the same user, until this process ends.
func Take(n int) ([]int, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("mirrorflow-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of port locks: %w", err)
	}
	top := min(highest, ephemeralStart())
	if top <= lowest {
		return nil, fmt.Errorf("no ports between %d and the start of the kernel's own range, %d", lowest, top)
	}
	span := top - lowest
	start := rand.IntN(span)
	ports := make([]int, 0, n)
	for i := range span {
		if len(ports) == n {
			break
		}
		port := lowest + (start+i)%span
		ok, err := reserve(dir, port)
		if err != nil {
			return nil, err
		}
		if ok {
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("only %d of %d free ports between %d and %d", len(ports), n, lowest, top)
	}
	return ports, nil
}

// One is Take for a single port.
func One() (int, error) {
	ports, err := Take(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// reserve locks the port's file for the life of this process and checks that nobody listens there.
func reserve(dir string, port int) (bool, error) {
	// The descriptor is left open on purpose: the lock ends with the process. A plain descriptor, not an os.File, since
	// the garbage collector would close that one.
	name := filepath.Join(dir, strconv.Itoa(port))
	fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return false, fmt.Errorf("open port lock %s: %w", name, err)
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		closeErr := syscall.Close(fd)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, closeErr
		}
		return false, errors.Join(fmt.Errorf("lock %s: %w", name, err), closeErr)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false, syscall.Close(fd)
	}
	return true, listener.Close()
}

// ephemeralStart is the first port that the kernel gives to outgoing connections.
func ephemeralStart() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return highest
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return highest
	}
	first, err := strconv.Atoi(fields[0])
	if err != nil {
		return highest
	}
	return first
}
