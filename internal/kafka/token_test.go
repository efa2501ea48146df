package kafka

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorflow/mirrorflow/internal/test/oauthtest"
)

func oauthSecurity(s *oauthtest.Server) Security {
	return Security{Protocol: SASLPlaintext, SASL: SASL{
		Mechanism: OAuthBearer, TokenEndpoint: s.TokenURL(), ClientID: oauthtest.ClientID, ClientSecret: oauthtest.ClientSecret, Scope: "kafka other",
	}}
}

func TestB87ATokenIsKeptAndFetchedAgainBeforeItEnds(t *testing.T) {
	t.Parallel()
	server := oauthtest.New(t, oauthtest.Options{})
	c := NewCredentials(oauthSecurity(server))
	first, err := c.tokens.get(t.Context(), c.Get())
	require.NoError(t, err)
	second, err := c.tokens.get(t.Context(), c.Get())
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, 1, server.Granted())
	require.Equal(t, []string{"kafka other"}, server.Scopes())

	c.tokens.renewAt = time.Now().Add(-time.Second)
	_, err = c.tokens.get(t.Context(), c.Get())
	require.NoError(t, err)
	require.Equal(t, 2, server.Granted(), "before its end a token is fetched again")

	server.Fail(http.StatusServiceUnavailable)
	c.tokens.renewAt = time.Now().Add(-time.Second)
	_, err = c.tokens.get(t.Context(), c.Get())
	require.NoError(t, err, "while the endpoint is down the token is used to its end")
	c.tokens.expires = time.Now().Add(-time.Second)
	_, err = c.tokens.get(t.Context(), c.Get())
	require.ErrorContains(t, err, "503")
	asked := server.Requests()
	for range 20 {
		_, err = c.tokens.get(t.Context(), c.Get())
		require.Error(t, err)
	}
	require.LessOrEqual(t, server.Requests()-asked, 2, "a failing endpoint is not asked for each connection")

	server.Fail(0)
	c.tokens.retryAt = time.Time{}
	_, err = c.tokens.get(t.Context(), c.Get())
	require.NoError(t, err)
}

func TestReplacedClientSecretMakesTheTokenVoid(t *testing.T) {
	t.Parallel()
	server := oauthtest.New(t, oauthtest.Options{})
	c := NewCredentials(oauthSecurity(server))
	_, err := c.tokens.get(t.Context(), c.Get())
	require.NoError(t, err)
	next := c.Get()
	next.SASL.ClientSecret = "wrong-secret-text"
	c.Set(next)
	_, err = c.tokens.get(t.Context(), c.Get())
	require.Error(t, err)
	require.NotContains(t, err.Error(), "wrong-secret-text")
	p := Classify(err)
	require.Equal(t, AuthFailed, p.Code)
	require.Equal(t, StepAuthenticate, p.Step)
	require.Contains(t, p.Message, "401")
	require.Contains(t, p.Remedy, "clientSecret")
}

func TestTokenEndpointsThatMisbehaveGiveNoSecretAway(t *testing.T) {
	t.Parallel()
	const secret = "very-secret-text"
	var visited string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { visited = r.URL.Path }))
	defer elsewhere.Close()
	handlers := map[string]http.HandlerFunc{
		"echoes the secret": func(w http.ResponseWriter, r *http.Request) {
			_, pass, _ := r.BasicAuth()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			_, _ = fmt.Fprintf(w, `{"error":%q,"error_description":%q}`, pass, pass)
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/stolen", http.StatusTemporaryRedirect)
		},
		"no token":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) },
		"not json":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(secret)) },
		"cuts the line": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(h)
			defer s.Close()
			_, _, err := fetchToken(t.Context(), Security{SASL: SASL{TokenEndpoint: s.URL, ClientID: "id", ClientSecret: secret}})
			require.Error(t, err)
			p := Classify(err)
			require.NotNil(t, p)
			for e := err; e != nil; {
				require.NotContains(t, e.Error(), secret)
				u, ok := e.(interface{ Unwrap() error })
				if !ok {
					break
				}
				e = u.Unwrap()
			}
			require.NotContains(t, p.Message+p.Remedy, secret)
		})
	}
	require.Empty(t, visited, "redirects are not followed")
}

func TestAnEndpointThatAnswersSomethingElseThanATokenIsQuotedByStatusAndType(t *testing.T) {
	t.Parallel()
	const secret = "very-secret-text"
	for _, tc := range []struct {
		name, kind, body, says string
		status                 int
	}{
		{"a login page", "text/html; charset=utf-8", "<html>log in</html>", "answered 200 (text/html), but not with a token", 200},
		{"json without a token", "application/json", `{"hello":"world"}`, "answered 200 (application/json), but not with a token", 200},
		{"broken json", "application/json", `{"access_token":`, "answered 200 (application/json), but not with a token", 200},
		{"a token of another type", "application/json", `{"access_token":7}`, "answered 200 (application/json), but not with a token", 200},
		{"nothing", "", "", "answered 202 (no content type), but not with a token", 202},
		{"the secret as a type", secret + "/" + secret, secret, "answered 200 (another content type), but not with a token", 200},
		{"an error page", "text/html", "<html>sorry</html>", "answered 503", 503},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if tc.kind != "" {
					w.Header().Set("Content-Type", tc.kind)
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer s.Close()
			endpoint := strings.Replace(s.URL, "http://", "http://user:"+secret+"@", 1)
			_, _, err := fetchToken(t.Context(), Security{SASL: SASL{TokenEndpoint: endpoint, ClientID: "id", ClientSecret: secret}})
			require.ErrorContains(t, err, tc.says)
			p := Classify(err)
			require.Equal(t, AuthFailed, p.Code)
			require.Contains(t, p.Message, tc.says)
			require.Contains(t, p.Remedy, "security.sasl.tokenEndpoint")
			require.NotContains(t, p.Remedy, "can be reached")
			require.NotContains(t, fmt.Sprint(err, p.Message, p.Remedy), secret)
			if tc.body != "" {
				require.NotContains(t, p.Message, tc.body)
			}
		})
	}
}

func TestASilentTokenEndpointIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err := fetchToken(ctx, Security{SASL: SASL{TokenEndpoint: "http://" + silent(t), ClientID: "id", ClientSecret: "s"}})
	require.ErrorContains(t, err, "gave no answer")
	require.Equal(t, AuthFailed, Classify(&stepError{StepAuthenticate, peer{}, err}).Code)
}

func TestTheEndOfATokenWithoutStatedLifeIsItsExpClaim(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end.Unix()))
	require.True(t, end.Equal(jwtExpiry("h."+claims+".s")))
	for _, opaque := range []string{"", "abc", "a.b", "a.!!.c", "a." + base64.RawURLEncoding.EncodeToString([]byte(`{}`)) + ".c"} {
		require.True(t, jwtExpiry(opaque).IsZero(), opaque)
	}
}
