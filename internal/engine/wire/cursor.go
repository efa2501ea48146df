package wire

import (
	"encoding/binary"
	"errors"
)

// ErrAnswer is wrapped by errors about answers that are not what the protocol says.
var ErrAnswer = errors.New("the broker's answer does not parse")

// cursor reads an answer in place. After the first fault everything is zero and ok is false.
type cursor struct {
	b    []byte
	bad  bool
	flex bool // compact lengths and tags
}

func (c *cursor) ok() bool { return !c.bad }

func (c *cursor) fail() {
	c.bad, c.b = true, nil
}

func (c *cursor) span(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.fail()
		return nil
	}
	s := c.b[:n:n]
	c.b = c.b[n:]
	return s
}

func (c *cursor) int16() int16 {
	if len(c.b) < 2 {
		c.fail()
		return 0
	}
	v := binary.BigEndian.Uint16(c.b)
	c.b = c.b[2:]
	return int16(v)
}

func (c *cursor) int32() int32 {
	if len(c.b) < 4 {
		c.fail()
		return 0
	}
	v := binary.BigEndian.Uint32(c.b)
	c.b = c.b[4:]
	return int32(v)
}

func (c *cursor) int64() int64 {
	if len(c.b) < 8 {
		c.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(c.b)
	c.b = c.b[8:]
	return int64(v)
}

func (c *cursor) uuid() (id [16]byte) {
	copy(id[:], c.span(16))
	return id
}

// uvarint is at most 2^31-1, as all lengths are.
func (c *cursor) uvarint() int {
	if len(c.b) > 0 && c.b[0] < 0x80 {
		v := int(c.b[0])
		c.b = c.b[1:]
		return v
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 || n > 5 || v > 1<<31-1 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return int(v)
}

// length reads the length of an array or of bytes; -1 is null.
func (c *cursor) length() int {
	if c.flex {
		return c.uvarint() - 1
	}
	n := int(c.int32())
	if n < -1 {
		c.fail()
	}
	return n
}

// array reads an array's length; null is empty. What is declared beyond the bytes that are left fails at once.
func (c *cursor) array() int {
	n := c.length()
	if n > len(c.b) {
		c.fail()
	}
	if c.bad || n < 0 {
		return 0
	}
	return n
}

// bytes reads nullable bytes; null is nil.
func (c *cursor) bytes() []byte {
	n := c.length()
	if c.bad || n < 0 {
		return nil
	}
	return c.span(n)
}

// str reads a nullable string as its bytes; null is nil.
func (c *cursor) str() []byte {
	var n int
	if c.flex {
		n = c.uvarint() - 1
	} else {
		n = int(c.int16())
	}
	if n < -1 {
		c.fail()
	}
	if c.bad || n < 0 {
		return nil
	}
	return c.span(n)
}

// tags skips tagged fields, which come with compact lengths only.
func (c *cursor) tags() {
	if !c.flex {
		return
	}
	for n := c.uvarint(); n > 0 && c.ok(); n-- {
		c.uvarint()
		c.span(c.uvarint())
	}
}

// nested is a cursor over the next tagged field's content.
func (c *cursor) nested() cursor {
	inner := cursor{flex: true}
	inner.b = c.span(c.uvarint())
	inner.bad = c.bad
	return inner
}

// Leader is what a broker says of a partition's leader, in answers that blame us for asking the wrong one.
type Leader struct {
	// Node is the broker's id, -1 where nothing was said.
	Node int32
	// Epoch is the leader's.
	Epoch int32
}

var noLeader = Leader{Node: -1, Epoch: -1}

// Node is a broker's address, in answers that name a leader.
type Node struct {
	ID   int32
	Host string
	Port int32
	Rack string // "" where there is none
}

// leader reads the tagged field with a leader.
func (c *cursor) leader() Leader {
	in := c.nested()
	l := Leader{Node: in.int32(), Epoch: in.int32()}
	in.tags()
	if in.bad {
		c.fail()
		return noLeader
	}
	return l
}

// nodes reads the tagged field with brokers.
func (c *cursor) nodes(dst []Node) []Node {
	in := c.nested()
	for n := in.array(); n > 0 && in.ok(); n-- {
		id, host := in.int32(), in.str()
		if host == nil {
			in.fail() // it must not be null
		}
		node := Node{ID: id, Host: string(host), Port: in.int32(), Rack: string(in.str())}
		in.tags()
		dst = append(dst, node)
	}
	if in.bad {
		c.fail()
	}
	return dst
}

// The writing side.

func appendString(dst []byte, s string, flex bool) []byte {
	if flex {
		dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	}
	return append(dst, s...)
}

func appendLength(dst []byte, n int, flex bool) []byte {
	if flex {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

func appendTags(dst []byte, flex bool) []byte {
	if flex {
		return append(dst, 0)
	}
	return dst
}

func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }

func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

// appendHeader begins a frame: room for its length, then the request header.
func appendHeader(dst []byte, key, version int16, correlation int32, clientID string, flex bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = appendInt32(dst, correlation)
	// The client id has the old form in every header.
	dst = appendString(dst, clientID, false)
	return appendTags(dst, flex)
}
