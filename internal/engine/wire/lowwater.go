package wire

import (
	"net"
	"syscall"
)

const (
	// pieceBytes is how much of a large answer is waited for before the reader is woken. Each piece costs a wake-up and a
	// system call, and the broker sends small ones.
	pieceBytes = 512 << 10
	// leastPiece is the least that is worth setting it.
	leastPiece = 64 << 10
)

// lowWater says how many bytes a socket must have before its reader is woken. The zero value leaves the socket as it is.
type lowWater struct {
	raw syscall.RawConn // nil: cannot be set
	at  int

	apply func(fd uintptr) // made once, so that setting it allocates nothing
	next  int
	err   error
}

// newLowWater is for a connection to a socket, directly or behind the gate of kafka.Cluster.MayWrite. A TLS connection
// reads ahead, so what it still needs from the socket is not known.
func newLowWater(conn net.Conn) *lowWater {
	if gated, ok := conn.(interface {
		NetConn() net.Conn
		WriteBuffers(*net.Buffers) (int64, error)
	}); ok {
		conn = gated.NetConn()
	}
	w := &lowWater{at: 1}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			w.raw, w.apply = raw, func(fd uintptr) { w.err = setLowWater(fd, w.next) }
		}
	}
	return w
}

// await has the reader woken when a good piece of the n bytes that are to come has arrived, or all.
func (w *lowWater) await(n int) {
	if n < leastPiece {
		n = min(n, w.at)
	}
	w.set(min(n, pieceBytes))
}

// any has it woken by every byte.
func (w *lowWater) any() { w.set(1) }

// high tells that bytes may have arrived which woke nobody.
func (w *lowWater) high() bool { return w.at > 1 }

// giveUp leaves the socket as it is from now on.
func (w *lowWater) giveUp() {
	w.any()
	*w = lowWater{at: 1}
}

func (w *lowWater) set(n int) {
	if w.raw == nil || n == w.at {
		return
	}
	w.next = n
	if err := w.raw.Control(w.apply); err != nil || w.err != nil {
		*w = lowWater{at: 1} // a closed connection, which the next read says, or a system that does not know it
		return
	}
	w.at = n
}
