package batch

import "fmt"

// Body returns a copy of key, value and headers of record i of b, counted from 0, with their lengths, as they stand in the
// batch: equal for equal records whatever batch they are in. limit bounds what the batch may take decompressed. Errors wrap
// ErrCorrupt, ErrTooLarge or are the codec's.
func Body(b Batch, i, limit int, codec Codec) ([]byte, error) {
	payload := b.Payload()
	if c := b.Codec(); c != CodecNone {
		var err error
		if payload, err = codec.Decompress(nil, payload, c, limit); err != nil {
			return nil, fmt.Errorf("decompress the batch at offset %d: %w", b.BaseOffset(), err)
		}
	}
	if i < 0 || i >= int(b.Count()) {
		return nil, fmt.Errorf("%w: the batch at offset %d has no record %d", ErrCorrupt, b.BaseOffset(), i)
	}
	for {
		r, rest, err := nextRecord(payload)
		switch {
		case err != nil:
			return nil, err
		case i == 0:
			return append([]byte(nil), r.body...), nil
		}
		i, payload = i-1, rest
	}
}
