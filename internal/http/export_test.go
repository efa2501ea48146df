package httpapi

import "github.com/mirrorflow/mirrorflow/internal/flows"

// What tests of this package look at from inside.
var (
	DecodeJSON = decodeJSON
	MergePatch = mergePatch
	FamilyOf   = familyOf
)

// StatusOf returns the status and the OVHcloud class of a code, 0 when the table lacks it.
func StatusOf(c flows.Code) (int, string) {
	p := codeProblems[c]
	return p.status, p.class
}
