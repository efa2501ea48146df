package batch

import "hash/crc32"

// A checksum is linear over GF(2): if a change of some bytes changes the checksum register by d there, then n unchanged
// bytes later it has changed the register by d·x^(8n) mod P, whatever those bytes are. So the checksum of a batch with
// another header follows from the old one without looking at the records. It also keeps the source's evidence: a record
// bit that flips in our memory still does not fit, and the target refuses the batch.

// poly is the Castagnoli polynomial with x^31 in the lowest bit, as everything here.
const poly = crc32.Castagnoli

// zeros is how many bytes are shifted over by running the checksum instruction over zero bytes, which is faster for
// few; see BenchmarkPatch.
const zeros = 8 << 10

var (
	zeroBytes [zeros]byte
	// powers[k] is x^(2^k) mod P. Payloads have less than 2^31 bytes, shifts less than 2^34 bits.
	powers = makePowers()
)

func makePowers() (p [35]uint32) {
	p[0] = 1 << 30 // x
	for k := 1; k < len(p); k++ {
		p[k] = multiply(p[k-1], p[k-1])
	}
	return p
}

// multiply is a·b mod P.
func multiply(a, b uint32) uint32 {
	var product uint32
	for range 32 {
		// Masks instead of branches: the bits are random.
		product ^= b & uint32(int32(a)>>31)
		a <<= 1
		b = b>>1 ^ poly&-(b&1)
	}
	return product
}

// shift is d·x^(8n) mod P.
func shift(d uint32, n int) uint32 {
	if n <= zeros {
		return ^crc32.Update(^d, castagnoli, zeroBytes[:n])
	}
	for k := 3; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			d = multiply(powers[k], d)
		}
	}
	return d
}
