package flows

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/google/uuid"
)

const aliasAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

// generatedAlias returns "<9 characters>.kafka-<8 characters>": the first part tells the project, the
// second the service, as in OVHcloud's names. It contains the default separator on purpose, like theirs.
func generatedAlias(project, service uuid.UUID) string {
	sum := sha256.Sum256(project[:])
	var part [9]byte
	for i := range part {
		part[i] = aliasAlphabet[int(sum[i])%len(aliasAlphabet)]
	}
	// The last bytes of a version 7 id are random, the first tell the time.
	return string(part[:]) + ".kafka-" + hex.EncodeToString(service[12:])
}
