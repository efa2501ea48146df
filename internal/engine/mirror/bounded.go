package mirror

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorflow/mirrorflow/internal/engine/batch/codec"
)

// bounded decompresses for the client library, which has no limit of its own outside of a client. left is how many bytes may
// still come out; an error wraps batch.ErrTooLarge when there are more.
type bounded struct {
	codec *codec.Codec
	left  int
}

var _ kgo.Decompressor = (*bounded)(nil)

// Decompress implements kgo.Decompressor.
func (d *bounded) Decompress(src []byte, of kgo.CompressionCodecType) ([]byte, error) {
	if of == kgo.CodecNone {
		return src, nil
	}
	out, err := d.codec.Decompress(nil, src, int8(of), d.left)
	d.left -= len(out)
	return out, err
}
