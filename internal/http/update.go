package httpapi

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// etag is an object's revision as a strong entity tag.
func etag(revision int64) *string {
	t := `"` + strconv.FormatInt(revision, 10) + `"`
	return &t
}

// matchRevision compares If-Match with the stored revision. It returns the
// revision to hand to the domain, which compares again in the same transaction
// as the change or the deletion, and whether the caller asked for a comparison.
func matchRevision(ifMatch *apigen.IfMatch, stored int64) (revision int64, asked bool, err error) {
	if ifMatch == nil {
		return flows.AnyRevision, false, nil
	}
	for tag := range strings.SplitSeq(*ifMatch, ",") {
		// A weak tag never matches here (RFC 9110, 13.1.1), nor does a text that is no tag of ours.
		switch strings.TrimSpace(tag) {
		case "*":
			return flows.AnyRevision, true, nil
		case *etag(stored):
			return stored, true, nil
		}
	}
	return 0, true, &flows.Error{
		Code: flows.CodePreconditionFailed, Message: "the object's ETag is " + *etag(stored) + " now; read it again and decide anew",
	}
}

// A change that is built on what was read is built anew up to maxStale times, with a pause in between
// that is random, so that those who got in each other's way do so no more.
const (
	maxStale   = 20
	stalePause = 4 * time.Millisecond // the longest first pause; later ones grow
)

// retryStale runs a read-and-change again when somebody else changed the object
// in between, unless the caller asked for exactly that to fail or ctx ends.
func retryStale[T any](ctx context.Context, change func() (out T, asked bool, err error)) (T, error) {
	var none T
	for try := range maxStale {
		out, asked, err := change()
		if asked || flows.CodeOf(err) != flows.CodePreconditionFailed {
			return out, err
		}
		if try == maxStale-1 {
			break
		}
		pause := time.NewTimer(rand.N(stalePause << min(try, 5)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return none, keepChanging()
		}
	}
	return none, keepChanging()
}

func keepChanging() error {
	return &flows.Error{Code: flows.CodeConflict, Message: "others keep changing the object; try again"}
}

// checkUnchanged answers for the named members of a body that they are not what
// is stored. Omitted ones are fine; null equals absent.
func checkUnchanged(stored, sent map[string]any, why string, names ...string) []apigen.ProblemField {
	var fields []apigen.ProblemField
	for _, name := range names {
		v, there := sent[name]
		if !there || sameValue(stored[name], v) {
			continue
		}
		text, err := json.Marshal(stored[name])
		if err != nil {
			text = []byte("another one")
		}
		fields = append(fields, apigen.ProblemField{Pointer: "/" + name, Message: why + "; the stored value is " + string(text)})
	}
	return fields
}

// sameValue compares JSON values; times and UUIDs may be spelt in several ways.
func sameValue(a, b any) bool {
	s, ok1 := a.(string)
	t, ok2 := b.(string)
	if !ok1 || !ok2 {
		return reflect.DeepEqual(a, b)
	}
	if s == t {
		return true
	}
	if len(s) == 36 && strings.Count(s, "-") == 4 {
		return strings.EqualFold(s, t)
	}
	x, err1 := time.Parse(time.RFC3339Nano, s)
	y, err2 := time.Parse(time.RFC3339Nano, t)
	return err1 == nil && err2 == nil && x.Equal(y)
}

const (
	isReadOnly   = "is read-only"
	neverChanges = "never changes"
)

func checkServiceUnchanged(stored flows.Service, sent map[string]any) error {
	shown, err := ToAPIService(stored)
	if err != nil {
		return err
	}
	tree, err := asTree(shown)
	if err != nil {
		return err
	}
	readOnly := []string{"id", "status", "statusDetail", "storedSecrets", "kafkaClusterId", "createdAt", "updatedAt"}
	if stored.Engine == flows.EngineKafka {
		readOnly = append(readOnly, "version")
	}
	fields := checkUnchanged(tree, sent, isReadOnly, readOnly...)
	fields = append(fields, checkUnchanged(tree, sent, neverChanges, "engine")...)
	return fieldsOrNil(fields)
}

func checkReplicationUnchanged(stored flows.Flow, sent map[string]any) error {
	tree, err := asTree(ToAPIReplication(stored))
	if err != nil {
		return err
	}
	fields := checkUnchanged(tree, sent, isReadOnly, "id", "createdAt", "updatedAt")
	fields = append(fields, checkUnchanged(tree, sent, neverChanges,
		"sourceIntegration", "targetIntegration", "replicationPolicyClass", "replicationPolicySeparator")...)
	return fieldsOrNil(fields)
}

func fieldsOrNil(fields []apigen.ProblemField) error {
	if len(fields) == 0 {
		return nil
	}
	slices.SortFunc(fields, func(a, b apigen.ProblemField) int { return strings.Compare(a.Pointer, b.Pointer) })
	return invalidFields(fields...)
}

// secretPlaces are the write-only members of a service. A merge patch cannot
// reach them through what GET shows, so a null for one is carried over by hand:
// to PUT it means removal, and absence means keep.
var secretPlaces = [][3]string{
	{"security", "tls", "key"}, {"security", "sasl", "password"}, {"security", "sasl", "clientSecret"},
}

func keepSecretNulls(merged, patch any) {
	for _, place := range secretPlaces {
		from, to := patch, merged
		for _, name := range place[:2] {
			from, to = member(from, name), member(to, name)
		}
		object, ok := from.(map[string]any)
		if !ok {
			continue
		}
		if v, there := object[place[2]]; there && v == nil {
			if target, ok := to.(map[string]any); ok {
				// mergePatch made this object anew, since the patch has one at the same place.
				target[place[2]] = nil
			}
		}
	}
}

func member(v any, name string) any {
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	return object[name]
}
