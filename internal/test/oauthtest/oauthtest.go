// Package oauthtest serves an OAuth 2 token endpoint and its key set on loopback, for tests of OAUTHBEARER.
//
// It owns one RSA key and the client_credentials grant. It must be imported by tests only: it is no authorization server.
// Start with New.
package oauthtest

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
)

// The client that a server knows unless Options say otherwise.
const (
	ClientID     = "mirror"
	ClientSecret = "mirror-client-secret"
)

// Audience is that of all tokens.
const Audience = "kafka"

const keyID = "test-key"

// Options of New.
type Options struct {
	// Clients are the known ids with their secrets; default ClientID with ClientSecret.
	Clients map[string]string
	// Lifetime of tokens; default one hour.
	Lifetime time.Duration
}

// Server is a token endpoint with its key set. Its methods may be called from any goroutine.
type Server struct {
	http *httptest.Server
	key  *rsa.PrivateKey

	mu       sync.Mutex
	clients  map[string]string
	lifetime time.Duration
	failure  int // HTTP status to answer with; 0 works
	requests int
	granted  int
	scopes   []string
}

// New starts a server on loopback that ends with the test.
func New(tb testing.TB, opts Options) *Server {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(tb, err)
	s := &Server{key: key, clients: opts.Clients, lifetime: opts.Lifetime}
	if s.clients == nil {
		s.clients = map[string]string{ClientID: ClientSecret}
	}
	if s.lifetime == 0 {
		s.lifetime = time.Hour
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", s.serveToken)
	mux.HandleFunc("GET /jwks", s.serveKeys)
	s.http = httptest.NewServer(mux)
	tb.Cleanup(s.http.Close)
	return s
}

// TokenURL is the token endpoint.
func (s *Server) TokenURL() string { return s.http.URL + "/token" }

// JWKSURL is the address of the key set that brokers check tokens with.
func (s *Server) JWKSURL() string { return s.http.URL + "/jwks" }

// Issuer is the issuer that tokens name.
func (s *Server) Issuer() string { return s.http.URL }

// Broker is what a broker needs to check this server's tokens.
func (s *Server) Broker() *kafkaproc.OAuth {
	return &kafkaproc.OAuth{JWKSURL: s.JWKSURL(), Audience: Audience, Issuer: s.Issuer()}
}

// Fail makes the token endpoint answer with the HTTP status; 0 heals it.
func (s *Server) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = status
}

// SetLifetime changes the lifetime of the tokens granted from now on.
func (s *Server) SetLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifetime = d
}

// SetClient adds a client or changes its secret.
func (s *Server) SetClient(id, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[id] = secret
}

// Requests counts the requests to the token endpoint, Granted those that got a token.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Granted counts the tokens that the endpoint gave out.
func (s *Server) Granted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted
}

// Scopes are the scopes of the granted requests, in order.
func (s *Server) Scopes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.scopes...)
}

// Token makes a token for the subject without a request.
func (s *Server) Token(subject string, lifetime time.Duration) (string, error) {
	now := time.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": s.Issuer(), "sub": subject, "aud": Audience, "scope": "kafka",
		"iat": now.Unix(), "exp": now.Add(lifetime).Unix(),
	})
	token.Header["kid"] = keyID
	return token.SignedString(s.key)
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	failure, lifetime := s.failure, s.lifetime
	s.mu.Unlock()
	if failure != 0 {
		answer(w, failure, map[string]any{"error": "server_error", "error_description": "told to fail"})
		return
	}
	if err := r.ParseForm(); err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_request"})
		return
	}
	if grant := r.PostForm.Get("grant_type"); grant != "client_credentials" {
		answer(w, http.StatusBadRequest, map[string]any{"error": "unsupported_grant_type", "error_description": grant})
		return
	}
	id, secret := credentials(r)
	s.mu.Lock()
	want, known := s.clients[id]
	s.mu.Unlock()
	if !known || want != secret {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	token, err := s.Token(id, lifetime)
	if err != nil {
		answer(w, http.StatusInternalServerError, map[string]any{"error": "server_error"})
		return
	}
	s.mu.Lock()
	s.granted++
	s.scopes = append(s.scopes, r.PostForm.Get("scope"))
	s.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": int(lifetime.Seconds()), "scope": r.PostForm.Get("scope"),
	})
}

// credentials takes the client's id and secret from the header, in which both are form-encoded (RFC 6749, 2.3.1), or from
// the body.
func credentials(r *http.Request) (id, secret string) {
	rawID, rawSecret, ok := r.BasicAuth()
	if !ok {
		return r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	id, idErr := url.QueryUnescape(rawID)
	secret, secretErr := url.QueryUnescape(rawSecret)
	if idErr != nil || secretErr != nil {
		return rawID, rawSecret
	}
	return id, secret
}

func (s *Server) serveKeys(w http.ResponseWriter, _ *http.Request) {
	encode := base64.RawURLEncoding.EncodeToString
	answer(w, http.StatusOK, map[string]any{"keys": []map[string]any{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": keyID,
		"n": encode(s.key.N.Bytes()), "e": encode(big.NewInt(int64(s.key.E)).Bytes()),
	}}})
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(fmt.Sprintf("oauthtest: write an answer: %v", err))
	}
}
