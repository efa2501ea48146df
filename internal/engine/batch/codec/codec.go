package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch"
)

const (
	// maxWindow is what a zstd frame may ask the decoder to keep; the Java client's highest level asks for this much.
	maxWindow = 128 << 20
	// zstdBlock is the most that a block of a zstd frame may hold.
	zstdBlock = 128 << 10
	// snappyBlock is the block size of Java's snappy stream.
	snappyBlock = 32 << 10
)

var (
	errUnknown = errors.New("unknown codec")
	errSnappy  = errors.New("malformed snappy framing")
	errZstd    = errors.New("a zstd frame claims to hold more than its blocks can")
	// snappyMagic begins Java's framing; two version numbers follow.
	snappyMagic  = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}
	snappyHeader = append(bytes.Clone(snappyMagic), 0, 0, 0, 1, 0, 0, 0, 1)
)

// Codec implements batch.Codec. It is safe for concurrent use.
type Codec struct {
	zstdEncoder *zstd.Encoder
	zstdDecoder *zstd.Decoder

	gzipReaders, gzipWriters, lz4Readers, lz4Writers sync.Pool
}

var _ batch.Codec = (*Codec)(nil)

// New makes a codec. It starts no goroutine and needs no Close.
func New() (*Codec, error) {
	c := &Codec{}
	var err error
	if c.zstdEncoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(512<<10), zstd.WithZeroFrames(true)); err != nil {
		return nil, fmt.Errorf("make zstd encoder: %w", err)
	}
	c.zstdDecoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	return c, nil
}

// Decompress implements batch.Codec.
func (c *Codec) Decompress(dst, src []byte, codec int8, limit int) ([]byte, error) {
	if limit < 0 {
		limit = 0
	}
	switch codec {
	case batch.CodecNone:
		if len(src) > limit {
			return dst, tooLarge(limit)
		}
		return append(dst, src...), nil
	case batch.CodecGzip:
		return c.gunzip(dst, src, limit)
	case batch.CodecSnappy:
		return unsnap(dst, src, limit)
	case batch.CodecLZ4:
		r, ok := c.lz4Readers.Get().(*lz4.Reader)
		if !ok {
			r = lz4.NewReader(nil)
		}
		defer c.lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		return readAll(dst, r, limit)
	case batch.CodecZstd:
		return c.unzstd(dst, src, limit)
	}
	return dst, fmt.Errorf("%w %d", errUnknown, codec)
}

// Compress implements batch.Codec.
func (c *Codec) Compress(dst, src []byte, codec int8) ([]byte, error) {
	switch codec {
	case batch.CodecNone:
		return append(dst, src...), nil
	case batch.CodecGzip:
		out := &appender{dst}
		w, ok := c.gzipWriters.Get().(*gzip.Writer)
		if !ok {
			w = gzip.NewWriter(nil)
		}
		defer c.gzipWriters.Put(w)
		w.Reset(out)
		return finish(out, w, src)
	case batch.CodecSnappy:
		return snap(dst, src), nil
	case batch.CodecLZ4:
		out := &appender{dst}
		w, ok := c.lz4Writers.Get().(*lz4.Writer)
		if !ok {
			w = lz4.NewWriter(nil)
			// As the Java client's: consumers allocate by block size.
			if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ConcurrencyOption(1)); err != nil {
				return dst, err
			}
		}
		defer c.lz4Writers.Put(w)
		w.Reset(out)
		return finish(out, w, src)
	case batch.CodecZstd:
		return c.zstdEncoder.EncodeAll(src, dst), nil
	}
	return dst, fmt.Errorf("%w %d", errUnknown, codec)
}

type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func finish(out *appender, w io.WriteCloser, src []byte) ([]byte, error) {
	if _, err := w.Write(src); err != nil {
		return out.b, err
	}
	err := w.Close()
	return out.b, err
}

func tooLarge(limit int) error { return fmt.Errorf("%w of %d bytes", batch.ErrTooLarge, limit) }

// readAll appends what r holds. Memory grows with what comes out, not with what is claimed.
func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	start := len(dst)
	for {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, max(4<<10, min(len(dst)-start, limit-(len(dst)-start)+1)))
		}
		room := dst[len(dst):cap(dst)]
		// One byte more than allowed tells whether there is more.
		if left := limit - (len(dst) - start) + 1; len(room) > left {
			room = room[:left]
		}
		n, err := r.Read(room)
		dst = dst[:len(dst)+n]
		switch {
		case len(dst)-start > limit:
			return dst[:start], tooLarge(limit)
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst[:start], err
		}
	}
}

func (c *Codec) gunzip(dst, src []byte, limit int) ([]byte, error) {
	r, ok := c.gzipReaders.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer c.gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, err
	}
	return readAll(dst, r, limit)
}

func (c *Codec) unzstd(dst, src []byte, limit int) ([]byte, error) {
	most, err := zstdMost(src, limit)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	dst = slices.Grow(dst, most)
	// Into the room that is there, which is the decoder's window, too: what a frame says of its window costs nothing.
	out, err := c.zstdDecoder.DecodeAll(src, dst[start:start:start+most])
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return dst[:start], tooLarge(limit)
	case err != nil:
		return dst[:start], err
	}
	return dst[:start+len(out)], nil
}

// zstdMost is the most that the frames in src can hold, but no more than limit. It believes only what their blocks' headers
// say: most clients do not write the size into the frame, and a header may lie. What is cut off is left to the decoder.
func zstdMost(src []byte, limit int) (int, error) {
	total := 0
	for len(src) > 0 {
		var h zstd.Header
		if err := h.Decode(src); err != nil {
			return 0, err
		}
		src = src[h.HeaderSize:]
		if h.Skippable {
			src = src[min(uint64(h.SkippableSize), uint64(len(src))):]
			continue
		}
		most := 0
		for last := false; !last && len(src) >= 3; {
			head := int(src[0]) | int(src[1])<<8 | int(src[2])<<16
			size := head >> 3
			last, src = head&1 != 0, src[3:]
			switch head >> 1 & 3 {
			case 0: // as it is
				most += min(size, len(src))
			case 1: // one byte again and again
				most += min(size, zstdBlock)
				size = 1
			default:
				most += zstdBlock
			}
			src = src[min(size, len(src)):]
		}
		if h.HasCheckSum {
			src = src[min(4, len(src)):]
		}
		if h.HasFCS {
			if h.FrameContentSize > uint64(limit-total) {
				return 0, tooLarge(limit)
			}
			if h.FrameContentSize > uint64(most) {
				return 0, errZstd
			}
			most = int(h.FrameContentSize)
		}
		if total += most; total >= limit {
			return limit, nil
		}
	}
	return total, nil
}

func snap(dst, src []byte) []byte {
	dst = append(dst, snappyHeader...)
	for len(src) > 0 {
		n := min(snappyBlock, len(src))
		dst = slices.Grow(dst, 4+s2.MaxEncodedLen(n))
		at := len(dst)
		block := s2.EncodeSnappy(dst[at+4:cap(dst)], src[:n]) // in place, since there is room
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = dst[:at+4+len(block)]
		src = src[n:]
	}
	return dst
}

func unsnap(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, snappyMagic) {
		return unsnapBlock(dst, src, limit)
	}
	if len(src) < len(snappyHeader) {
		return dst, errSnappy
	}
	start := len(dst)
	for src = src[len(snappyHeader):]; len(src) > 0; {
		if len(src) < 4 {
			return dst[:start], errSnappy
		}
		n := int(int32(binary.BigEndian.Uint32(src)))
		src = src[4:]
		if n < 0 || n > len(src) {
			return dst[:start], errSnappy
		}
		var err error
		if dst, err = unsnapBlock(dst, src[:n], limit-(len(dst)-start)); err != nil {
			return dst[:start], err
		}
		src = src[n:]
	}
	return dst, nil
}

func unsnapBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if n > limit {
		return dst, tooLarge(limit)
	}
	// The format cannot reach this ratio: two bytes copy 64 at most.
	if n > 64*len(src)+64 {
		return dst, errSnappy
	}
	at := len(dst)
	dst = slices.Grow(dst, n)
	out, err := s2.Decode(dst[at:at+n:at+n], src)
	if err != nil {
		return dst[:at], err
	}
	return dst[:at+len(out)], nil
}
