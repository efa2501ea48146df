package mirror

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
)

// bounded decompresses messages of old formats for the client library, which has no limit of its own outside of a client.
// left is how many bytes may still come out; an error wraps batch.ErrTooLarge when there are more. magic is the message's.
type bounded struct {
	codec *codec.Codec
	left  int
	magic byte
}

var _ kgo.Decompressor = (*bounded)(nil)

// Decompress implements kgo.Decompressor.
func (d *bounded) Decompress(src []byte, of kgo.CompressionCodecType) ([]byte, error) {
	if of == kgo.CodecNone {
		return src, nil
	}
	if of == kgo.CodecLz4 && d.magic == 0 {
		src = mendedLZ4(src)
	}
	out, err := d.codec.Decompress(nil, src, int8(of), d.left)
	d.left -= len(out)
	return out, err
}

// mendedLZ4 gives an LZ4 frame the header checksum of the standard. Clients that wrote format 0 counted the frame's magic
// number in, and those that read it do not look.
func mendedLZ4(frame []byte) []byte {
	const flags, sum = 4, 6
	if len(frame) <= sum {
		return frame
	}
	mended := bytes.Clone(frame)
	mended[sum] = byte(shortXXH32(frame[flags:sum]) >> 8)
	return mended
}

// shortXXH32 is the 32-bit xxHash, with seed 0, of less than 16 bytes.
func shortXXH32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := p5 + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
