package kafka

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// Redacted stands where a secret was.
const Redacted = "[redacted]"

const (
	// How many replaced securities and tokens are still looked for: open connections may use them, errors quote them late.
	keptSecurities = 8
	keptTokens     = 8
	// Shorter secrets are replaced only where they stand alone, or every text would be in pieces.
	leastInWords = 4
	// A shorter piece of an encoded secret could be anything.
	leastEncoded = 6
)

// secrets knows the secret values of credentials and replaces them in text. The zero value knows none.
type secrets struct {
	mu         sync.Mutex
	securities []Security // the newest last
	tokens     []string   // the newest last
	now        atomic.Pointer[replacer]
}

// use notes a security that is current from now on.
func (k *secrets) use(s Security) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.securities = kept(append(k.securities, s), keptSecurities+1)
	k.build()
}

// handOut notes a token before it is sent.
func (k *secrets) handOut(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.tokens, token) {
		return
	}
	k.tokens = kept(append(k.tokens, token), keptTokens)
	k.build()
}

// kept are the newest n of list.
func kept[T any](list []T, n int) []T { return slices.Clone(list[max(0, len(list)-n):]) }

func (k *secrets) build() {
	forms := map[string]bool{}
	for _, s := range k.securities {
		s.secretForms(forms)
	}
	for _, token := range k.tokens {
		encodings(forms, token)
		if parts := strings.Split(token, "."); len(parts) == 3 {
			encodings(forms, parts[1])
			encodings(forms, parts[2])
		}
	}
	k.now.Store(newReplacer(forms))
}

func (k *secrets) replace(text string) string { return k.now.Load().replace(text) }

// secretForms adds what the secrets of s may look like in text. Names of users, endpoints and certificates are no secrets.
func (s Security) secretForms(forms map[string]bool) {
	encodings(forms, s.SASL.Password)
	encodings(forms, s.SASL.ClientSecret)
	if s.SASL.ClientSecret != "" {
		// As in the header of a token request.
		encodings(forms, base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(s.SASL.ClientID)+":"+url.QueryEscape(s.SASL.ClientSecret))))
	}
	if u, err := url.Parse(s.SASL.TokenEndpoint); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			encodings(forms, password)
		}
	}
	for line := range strings.Lines(s.TLS.Key) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
			forms[line] = true
		}
	}
}

// encodings adds secret as it is and as servers may quote it: escaped, in hex, and in base64 wherever it stands within
// what was encoded.
func encodings(forms map[string]bool, secret string) {
	if secret == "" {
		return
	}
	forms[secret] = true
	quoted := strconv.Quote(secret)
	forms[quoted[1:len(quoted)-1]] = true
	if text, err := json.Marshal(secret); err == nil { // a string of any bytes can be encoded
		forms[string(text[1:len(text)-1])] = true
	}
	forms[url.QueryEscape(secret)] = true
	forms[url.PathEscape(secret)] = true
	encoded := func(form string) {
		if len(form) >= leastEncoded {
			forms[form] = true
		}
	}
	encoded(hex.EncodeToString([]byte(secret)))
	encoded(strings.ToUpper(hex.EncodeToString([]byte(secret))))
	for before := range 3 {
		// Only the characters that hold bits of the secret alone.
		padded := append(make([]byte, before), secret...)
		from, to := (before*8+5)/6, len(padded)*8/6
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			encoded(alphabet.EncodeToString(padded)[from:to])
		}
	}
}

// replacer replaces secrets; nil replaces nothing.
type replacer struct {
	long  *strings.Replacer
	short []string
}

func newReplacer(forms map[string]bool) *replacer {
	var long, short []string
	for form := range forms {
		switch {
		case form == "":
		case len(form) < leastInWords:
			short = append(short, form)
		default:
			long = append(long, form)
		}
	}
	// Where several begin at one place the first in the list counts.
	sort.Slice(long, func(i, j int) bool { return len(long[i]) > len(long[j]) })
	pairs := make([]string, 0, 2*len(long))
	for _, form := range long {
		pairs = append(pairs, form, Redacted)
	}
	return &replacer{strings.NewReplacer(pairs...), short}
}

func (r *replacer) replace(text string) string {
	if r == nil {
		return text
	}
	text = r.long.Replace(text)
	for _, s := range r.short {
		text = replaceAlone(text, s)
	}
	return text
}

// replaceAlone replaces s where no letter or digit is next to it.
func replaceAlone(text, s string) string {
	var out strings.Builder
	from := 0
	for at := 0; ; {
		i := strings.Index(text[at:], s)
		if i < 0 {
			out.WriteString(text[from:])
			return out.String()
		}
		begin, end := at+i, at+i+len(s)
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !wordly(before) && !wordly(after) {
			out.WriteString(text[from:begin])
			out.WriteString(Redacted)
			from = end
		}
		at = end
	}
}

func wordly(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
