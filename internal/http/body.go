package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
)

// maxDepth bounds nesting; the contract needs 4.
const maxDepth = 32

// decodeJSON reads exactly one JSON value. Stricter than encoding/json: a
// member named twice, text after the value, wrong UTF-8, half surrogates and
// the NUL character (which Postgres cannot store) are refused instead of one
// party seeing another value than the other. Objects become map[string]any,
// numbers json.Number. Errors are *problem.
func decodeJSON(text []byte) (any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, invalidBody("", "the body is empty; JSON is expected")
	}
	if !utf8.Valid(text) {
		return nil, invalidBody("", "the body is not UTF-8")
	}
	d := jsonReader{dec: json.NewDecoder(bytes.NewReader(text))}
	d.dec.UseNumber()
	// encoding/json turns half surrogates into U+FFFD; one that the text does not hold is such.
	d.replaced = !bytes.ContainsRune(text, utf8.RuneError) && !bytes.Contains(bytes.ToLower(text), []byte(`\ufffd`))
	v, err := d.value("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalidBody("", "there is something after the JSON value")
	}
	return v, nil
}

type jsonReader struct {
	dec      *json.Decoder
	replaced bool
}

func (d *jsonReader) value(pointer string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, invalidBody(pointer, "is nested too deeply")
	}
	tok, err := d.dec.Token()
	if err != nil {
		return nil, d.syntax(err)
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '[' {
			return d.array(pointer, depth)
		}
		return d.object(pointer, depth)
	case string:
		return t, d.text(pointer, t)
	case json.Number:
		return wholeNumber(t), nil
	}
	return tok, nil // bool or nil
}

func (d *jsonReader) array(pointer string, depth int) (any, error) {
	list := []any{}
	for d.dec.More() {
		v, err := d.value(pointer+"/"+strconv.Itoa(len(list)), depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if _, err := d.dec.Token(); err != nil {
		return nil, d.syntax(err)
	}
	return list, nil
}

func (d *jsonReader) object(pointer string, depth int) (any, error) {
	object := map[string]any{}
	for d.dec.More() {
		tok, err := d.dec.Token()
		if err != nil {
			return nil, d.syntax(err)
		}
		key, ok := tok.(string)
		if !ok {
			return nil, invalidBody(pointer, "is not JSON: a member needs a name")
		}
		at := pointer + "/" + escapePointer(key)
		if err := d.text(pointer, key); err != nil {
			return nil, err
		}
		if _, twice := object[key]; twice {
			return nil, invalidBody(at, "is there twice")
		}
		if object[key], err = d.value(at, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := d.dec.Token(); err != nil {
		return nil, d.syntax(err)
	}
	return object, nil
}

func (d *jsonReader) text(pointer, s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return invalidBody(pointer, "must not contain the NUL character")
	case d.replaced && strings.ContainsRune(s, utf8.RuneError):
		return invalidBody(pointer, "must not contain half a surrogate pair")
	}
	return nil
}

// syntax names the place only: the decoder's text may quote the body.
func (d *jsonReader) syntax(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return invalidBody("", "the body is not JSON: something is wrong near byte "+strconv.FormatInt(syntax.Offset, 10))
	}
	return invalidBody("", "the body is not JSON: it ends too early")
}

// wholeNumber writes 60.0 and 6e1 as 60, which are integers in JSON and not in Go's decoder.
func wholeNumber(n json.Number) json.Number {
	if !strings.ContainsAny(string(n), ".eE") {
		return n
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return n
	}
	return json.Number(strconv.FormatInt(int64(f), 10))
}

func encodeJSON(v any) ([]byte, error) { return json.Marshal(v) }

// asTree returns v as decodeJSON would.
func asTree(v any) (map[string]any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree map[string]any
	return tree, dec.Decode(&tree)
}

// fromTree fills a generated type from a tree that passed the contract.
func fromTree[T any](tree any) (T, error) {
	var out T
	text, err := json.Marshal(tree)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, decodeProblem(err)
	}
	return out, nil
}

// decodeProblem is the answer to a value that the contract let pass and a Go
// type did not. The decoder's own text is not repeated: it may quote values.
func decodeProblem(err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return invalidBody("/"+strings.ReplaceAll(mismatch.Field, ".", "/"), "has a value that cannot be represented")
	}
	p := invalidBody("", "the request cannot be read")
	p.cause = err
	return p
}

// prune leaves out what OVHcloud-shaped routes ignore: members that the schema
// does not name, and read-only ones. It also keeps encoding/json from matching
// a member by another spelling than the one that was validated.
func prune(v any, schema *openapi3.Schema) any {
	switch v := v.(type) {
	case map[string]any:
		if len(schema.Properties) == 0 {
			return v
		}
		kept := make(map[string]any, len(v))
		for name, value := range v {
			if p := schema.Properties[name]; p != nil && !p.Value.ReadOnly {
				kept[name] = prune(value, p.Value)
			}
		}
		return kept
	case []any:
		if schema.Items == nil {
			return v
		}
		list := make([]any, len(v))
		for i := range v {
			list[i] = prune(v[i], schema.Items.Value)
		}
		return list
	}
	return v
}

// mergePatch applies an RFC 7396 merge patch. Neither argument is changed; parts may be shared.
func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged := map[string]any{}
	if t, ok := target.(map[string]any); ok {
		for k, v := range t {
			merged[k] = v
		}
	}
	for k, v := range p {
		if v == nil {
			delete(merged, k)
			continue
		}
		merged[k] = mergePatch(merged[k], v)
	}
	return merged
}

// escapePointer escapes one token of a JSON pointer (RFC 6901).
func escapePointer(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

func parseQuery(r *http.Request) (url.Values, error) { return url.ParseQuery(r.URL.RawQuery) }
