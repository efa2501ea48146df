package batch

import (
	"encoding/binary"
	"fmt"
)

// minRecord is the length of the smallest record: six one-byte fields behind a one-byte length.
const minRecord = 7

// inner is one record as it stands in a decompressed payload.
type inner struct {
	attrs    byte
	tsDelta  int64
	offDelta int64
	body     []byte // key, value and headers with their lengths
}

// nextRecord reads the record at the head of payload, up to its body, and returns what follows it.
func nextRecord(payload []byte) (r inner, rest []byte, err error) {
	length, n := binary.Varint(payload)
	if n <= 0 || length < minRecord-1 || length > int64(len(payload)-n) {
		return r, nil, fmt.Errorf("%w: a record of %d bytes in %d", ErrCorrupt, length, len(payload))
	}
	rec := payload[n : n+int(length)]
	rest = payload[n+int(length):]
	r.attrs = rec[0]
	rec = rec[1:]
	if r.tsDelta, n = binary.Varint(rec); n <= 0 {
		return r, nil, fmt.Errorf("%w: a record without a timestamp", ErrCorrupt)
	}
	rec = rec[n:]
	if r.offDelta, n = binary.Varint(rec); n <= 0 {
		return r, nil, fmt.Errorf("%w: a record without an offset", ErrCorrupt)
	}
	r.body = rec[n:]
	return r, rest, nil
}

// checkBody tells whether key, value and headers fill body exactly. A target would refuse the whole batch otherwise, and
// not say for which record.
func checkBody(body []byte) bool {
	var ok bool
	if body, ok = skipBytes(body, true); !ok {
		return false
	}
	if body, ok = skipBytes(body, true); !ok {
		return false
	}
	headers, n := binary.Varint(body)
	if n <= 0 || n > binary.MaxVarintLen32 || headers < 0 || headers > int64(len(body)) {
		return false
	}
	body = body[n:]
	for range headers {
		if body, ok = skipBytes(body, false); !ok {
			return false
		}
		if body, ok = skipBytes(body, true); !ok {
			return false
		}
	}
	return len(body) == 0
}

func skipBytes(b []byte, mayBeNull bool) ([]byte, bool) {
	length, n := binary.Varint(b)
	switch {
	case n <= 0 || n > binary.MaxVarintLen32: // brokers read no longer ones here
		return nil, false
	case length < 0:
		return b[n:], mayBeNull && length == -1
	case length > int64(len(b)-n):
		return nil, false
	}
	return b[n+int(length):], true
}

// AppendBody appends what a record holds behind its offset: key, value (nil: null) and no headers.
func AppendBody(dst, key, value []byte) []byte {
	dst = appendNullable(dst, key)
	dst = appendNullable(dst, value)
	return append(dst, 0)
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func varintLen(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
