package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// glance is how long a read may take that only looks for what has come already.
const glance = 10 * time.Millisecond

// reader is what the reading goroutine keeps.
type reader struct {
	in       *bufio.Reader
	low      *lowWater
	small    []byte // of answers that are decoded at once
	produced ProduceResponse
}

// readLoop reads answers until the connection ends, and then ends what is open.
func (c *Conn) readLoop() {
	r := reader{in: bufio.NewReaderSize(c.net, 4<<10), low: newLowWater(c.net)}
	var err error
	for err == nil {
		err = c.readOne(&r)
	}
	c.end(err)
}

// readOne reads one answer and hands it over. An error ends the connection.
func (c *Conn) readOne(r *reader) error {
	head, err := r.in.Peek(8)
	if err != nil {
		return c.readError(err)
	}
	size, correlation := int32(binary.BigEndian.Uint32(head)), int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || int64(size) > int64(c.cfg.MaxAnswer) {
		return fmt.Errorf("%w: it has %d bytes, and at most %d are taken", ErrAnswer, size, c.cfg.MaxAnswer)
	}
	q, err := c.oldest()
	if err != nil {
		return err
	}
	if correlation != q.correlation {
		return fmt.Errorf("%w: it is number %d, and number %d is due", ErrAnswer, correlation, q.correlation)
	}
	if _, err := r.in.Discard(8); err != nil {
		return c.readError(err)
	}
	began := time.Now()
	var buffer *Buffer
	var body []byte
	if q.fetched != nil {
		if buffer, err = c.readPooled(r, int(size)-4, q.expect); err == nil {
			body = buffer.Bytes()
		}
	} else {
		r.small, err = c.readSmall(r, r.small[:0], int(size)-4, q.expect)
		body = r.small
	}
	if h, ok := c.cfg.Hook.(kgo.HookBrokerRead); ok {
		h.OnBrokerRead(c.meta, q.key, 4+int(size), 0, time.Since(began), err)
	}
	if err != nil {
		return c.readError(err)
	}
	return c.deliver(r, q, buffer, body)
}

// deliver decodes an answer and hands it over.
func (c *Conn) deliver(r *reader, q *call, buffer *Buffer, body []byte) error {
	h := cursor{b: body, flex: q.flex}
	h.tags() // the end of the header
	err := error(nil)
	if h.bad {
		err = fmt.Errorf("%w: no end of its header", ErrAnswer)
	}
	var throttle time.Duration
	var fetched *FetchResponse
	switch {
	case q.fetched != nil:
		fetched = c.cfg.Pool.response()
		fetched.Buffer = buffer
		if err == nil {
			err = fetched.Decode(q.version, h.b, q.answerable)
		}
		if q.version >= throttledAfter {
			throttle = fetched.Throttle
		}
	case q.produced != nil:
		if err == nil {
			err = r.produced.Decode(q.version, h.b, q.answerable)
		}
		if q.version >= produceThrottleAfter {
			throttle = r.produced.Throttle
		}
	}
	if err != nil {
		// What follows cannot be trusted; the call ends with the connection.
		if fetched != nil {
			fetched.Release()
		}
		return err
	}
	r.produced.Took = c.pop(throttle)
	if t, ok := c.cfg.Hook.(kgo.HookBrokerThrottle); ok && throttle > 0 {
		t.OnBrokerThrottle(c.meta, throttle, true)
	}
	switch {
	case fetched != nil:
		q.fetched(fetched, nil)
	case q.produced != nil:
		q.produced(&r.produced, nil)
	default:
		q.other <- answer{body: append([]byte(nil), h.b...)}
	}
	c.recycle(q)
	return nil
}

// readPooled reads n bytes into a pooled buffer. Beyond what was to be expected, memory follows what has arrived.
func (c *Conn) readPooled(r *reader, n, expect int) (*Buffer, error) {
	b := c.cfg.Pool.Get(min(n, expect))
	for have := 0; ; {
		if err := c.fill(r, b.Bytes()[have:]); err != nil {
			b.Release()
			return nil, err
		}
		if have = len(b.Bytes()); have == n {
			return b, nil
		}
		larger := c.cfg.Pool.Get(min(n, 2*have))
		copy(larger.Bytes(), b.Bytes())
		b.Release()
		b = larger
	}
}

// readSmall is readPooled for answers that nobody keeps.
func (c *Conn) readSmall(r *reader, dst []byte, n, expect int) ([]byte, error) {
	if cap(dst) > slack {
		dst = nil // a large answer is rare and must not stay
	}
	for have := 0; have < n; {
		want := min(n, max(expect, 2*have))
		if cap(dst) < want {
			dst = append(make([]byte, 0, want), dst[:have]...)
		}
		dst = dst[:want]
		if err := c.fill(r, dst[have:]); err != nil {
			return dst, err
		}
		have = want
	}
	return dst[:n], nil
}

// fill reads into all of b. The time that a broker may be silent begins anew with every piece that comes.
func (c *Conn) fill(r *reader, b []byte) error {
	defer r.low.any()
	for at := 0; at < len(b); {
		if r.in.Buffered() == 0 {
			r.low.await(len(b) - at)
			if err := c.net.SetReadDeadline(time.Now().Add(c.cfg.Silence)); err != nil {
				return err
			}
		}
		n, err := r.in.Read(b[at:])
		if err != nil && r.low.high() && errors.Is(err, os.ErrDeadlineExceeded) {
			// Is the broker silent, or did so little come that nobody was woken?
			r.low.any()
			if err = c.net.SetReadDeadline(time.Now().Add(glance)); err == nil {
				n, err = r.in.Read(b[at:])
			}
			if n > 0 {
				r.low.giveUp() // the line is slow, or this system does not wake readers as it should
			}
		}
		at += n
		if err != nil && at < len(b) {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// readError words what ended the reading.
func (c *Conn) readError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the broker closed the connection: %w", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the broker sends nothing: %w", err)
	}
	return fmt.Errorf("read: %w", err)
}
