package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	tokenTimeout = 5 * time.Second
	// A token without a stated end is fetched again after this time.
	tokenDefaultLife = 5 * time.Minute
	// While the endpoint fails, logins are answered from memory for a growing time, at most this.
	tokenMaxBackoff = 5 * time.Second
	// A token is fetched again this long before its end, or a fifth of its life if that is longer, 30 s at most. A login
	// with less left would have to be renewed within a second, which brokers refuse.
	tokenMargin    = 3 * time.Second
	tokenMaxMargin = 30 * time.Second
	// With less left than this, a token is not used even while no other can be had.
	tokenLeast = 2 * time.Second
)

// tokenError says why no token could be had. It never carries the secret, the
// token, or the body of the answer.
type tokenError struct {
	endpoint string
	status   int    // HTTP status; 0: no answer
	kind     string // media type of the answer, as far as it is one
	code     string // RFC 6749 error code, as far as it is one
	err      error  // transport error; nil when there was an answer
}

func (e *tokenError) Error() string {
	switch {
	case e.status >= 200 && e.status <= 299:
		kind := e.kind
		if kind == "" {
			kind = "no content type"
		}
		return fmt.Sprintf("the token endpoint %s answered %d (%s), but not with a token", e.endpoint, e.status, kind)
	case e.status != 0 && e.code != "":
		return fmt.Sprintf("the token endpoint %s answered %d %s", e.endpoint, e.status, e.code)
	case e.status != 0:
		return fmt.Sprintf("the token endpoint %s answered %d", e.endpoint, e.status)
	}
	return fmt.Sprintf("the token endpoint %s gave no answer", e.endpoint)
}

func (e *tokenError) Unwrap() error { return e.err }

// tokenCache keeps one token for all connections that share credentials.
type tokenCache struct {
	mu sync.Mutex // held while fetching, so that one fetch serves all

	key      tokenKey
	token    string
	renewAt  time.Time
	expires  time.Time
	err      error
	retryAt  time.Time
	failures int
}

// tokenKey is what a token depends on; replaced credentials make the cached token void.
type tokenKey struct{ endpoint, id, secret, scope, ca string }

// get returns a token that is good for a while, from memory or from the endpoint.
func (t *tokenCache) get(ctx context.Context, s Security) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := tokenKey{s.SASL.TokenEndpoint, s.SASL.ClientID, s.SASL.ClientSecret, s.SASL.Scope, s.TLS.CA}
	if key != t.key {
		t.forget()
		t.key = key
	}
	now := time.Now()
	if t.token != "" && now.Before(t.renewAt) {
		return t.token, nil
	}
	if t.err == nil || !now.Before(t.retryAt) {
		token, expires, err := fetchToken(ctx, s)
		if err == nil {
			life := expires.Sub(now)
			t.token, t.expires, t.err, t.failures = token, expires, nil, 0
			t.renewAt = expires.Add(-min(tokenMaxMargin, max(tokenMargin, life/5)))
			return token, nil
		}
		if ctx.Err() != nil {
			// The caller's end says nothing about the endpoint.
			return "", err
		}
		t.err = err
		t.retryAt = now.Add(min(tokenMaxBackoff, 250*time.Millisecond<<min(t.failures, 10)))
		t.failures++
	}
	if t.token != "" && now.Add(tokenLeast).Before(t.expires) {
		return t.token, nil
	}
	return "", t.err
}

// forget empties the cache; mu is held.
func (t *tokenCache) forget() {
	t.key, t.token, t.err, t.failures = tokenKey{}, "", nil, 0
	t.renewAt, t.expires, t.retryAt = time.Time{}, time.Time{}, time.Time{}
}

// rejected drops a token that a broker refused before its time, so that the next login fetches a new one.
func (t *tokenCache) rejected() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token = ""
}

// fetchToken asks the endpoint once.
func fetchToken(ctx context.Context, s Security) (token string, expires time.Time, err error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if s.TLS.CA != "" {
		roots.AppendCertsFromPEM([]byte(s.TLS.CA))
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: tokenTimeout}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		ResponseHeaderTimeout: tokenTimeout,
		DisableKeepAlives:     true,
	}
	seen := &answered{next: transport}
	client := &http.Client{
		Transport: seen,
		Timeout:   tokenTimeout,
		// A redirect would carry the secret to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	cfg := clientcredentials.Config{ClientID: s.SASL.ClientID, ClientSecret: s.SASL.ClientSecret, TokenURL: s.SASL.TokenEndpoint}
	if s.SASL.Scope != "" {
		cfg.Scopes = strings.Fields(s.SASL.Scope)
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, client), tokenTimeout)
	defer cancel()
	asked := time.Now()
	got, err := cfg.Token(ctx)
	if err != nil {
		return "", time.Time{}, seen.failure(ctx, s, err)
	}
	if got.AccessToken == "" {
		return "", time.Time{}, seen.failure(ctx, s, nil)
	}
	expires = got.Expiry
	if expires.IsZero() {
		expires = jwtExpiry(got.AccessToken)
	}
	if expires.IsZero() {
		expires = asked.Add(tokenDefaultLife)
	}
	return got.AccessToken, expires, nil
}

// answered notes how the endpoint answered, which the OAuth library does not tell when it finds no token in it.
type answered struct {
	next   http.RoundTripper
	mu     sync.Mutex
	status int
	kind   string
}

// RoundTrip implements http.RoundTripper.
func (a *answered) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(req)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.kind = 0, ""
	if err == nil {
		a.status, a.kind = resp.StatusCode, safeMediaType(resp.Header.Get("Content-Type"))
	}
	return resp, err
}

// failure words why there is no token; err is the library's, if any.
func (a *answered) failure(ctx context.Context, s Security, err error) *tokenError {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := &tokenError{endpoint: s.SASL.TokenEndpoint, status: a.status, kind: a.kind}
	if u, err := url.Parse(e.endpoint); err == nil {
		e.endpoint = u.Redacted()
	}
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		e.status, e.code = answer.Response.StatusCode, safeErrorCode(answer.ErrorCode)
		return e
	}
	if ctx.Err() != nil {
		e.status, e.err = 0, ctx.Err() // it began to answer at most
	} else if e.status == 0 {
		e.err = transportCause(err)
	}
	return e
}

// transportCause drops the layers of the HTTP client, whose texts carry the URL with its user part.
func transportCause(err error) error {
	for _, known := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, known) {
			return known
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return bad
	}
	return errors.New("transport failed")
}

// safeErrorCode lets through what looks like an error code and nothing else, since endpoints echo.
func safeErrorCode(code string) string {
	if len(code) > 40 {
		return ""
	}
	for _, r := range code {
		if (r < 'a' || r > 'z') && r != '_' {
			return ""
		}
	}
	return code
}

// safeMediaType lets through the media types that servers answer with, by name; anything else may be an echo.
func safeMediaType(header string) string {
	if header == "" {
		return ""
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil && kind == "" {
		return "an unreadable content type"
	}
	switch kind {
	case "text/html", "text/plain", "text/xml", "application/xml", "application/json", "application/problem+json", "application/jwt",
		"application/jose", "application/x-www-form-urlencoded", "application/octet-stream", "application/xhtml+xml":
		return kind
	}
	return "another content type"
}

// jwtExpiry reads a token's exp claim without judging the token; zero when there is none.
func jwtExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}
