package oauthtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

func TestTheTokenEndpointGrantsKnownClientsOnly(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name       string
		id, secret string
		basic      bool
		grant      string
		fail       int
		want       int
	}{
		{"header", ClientID, ClientSecret, true, "client_credentials", 0, http.StatusOK},
		{"body", ClientID, ClientSecret, false, "client_credentials", 0, http.StatusOK},
		{"wrong secret", ClientID, "no", true, "client_credentials", 0, http.StatusUnauthorized},
		{"unknown client", "other", ClientSecret, false, "client_credentials", 0, http.StatusUnauthorized},
		{"other grant", ClientID, ClientSecret, true, "password", 0, http.StatusBadRequest},
		{"told to fail", ClientID, ClientSecret, true, "client_credentials", http.StatusServiceUnavailable, http.StatusServiceUnavailable},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := New(t, Options{Lifetime: 30 * time.Second})
			s.Fail(tc.fail)
			form := url.Values{"grant_type": {tc.grant}, "scope": {"kafka"}}
			if !tc.basic {
				form.Set("client_id", tc.id)
				form.Set("client_secret", tc.secret)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.TokenURL(), strings.NewReader(form.Encode()))
			require.NoError(t, err)
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if tc.basic {
				request.SetBasicAuth(url.QueryEscape(tc.id), url.QueryEscape(tc.secret))
			}
			response, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			defer func() { require.NoError(t, response.Body.Close()) }()
			require.Equal(t, tc.want, response.StatusCode)
			require.Equal(t, 1, s.Requests())
			var body struct {
				Token   string `json:"access_token"`
				Expires int    `json:"expires_in"`
				Error   string `json:"error"`
			}
			require.NoError(t, json.NewDecoder(response.Body).Decode(&body))
			if tc.want != http.StatusOK {
				require.NotEmpty(t, body.Error)
				require.Zero(t, s.Granted())
				return
			}
			require.Equal(t, 30, body.Expires)
			token, err := jwt.Parse(body.Token, func(*jwt.Token) (any, error) { return &s.key.PublicKey, nil },
				jwt.WithAudience(Audience), jwt.WithIssuer(s.Issuer()), jwt.WithExpirationRequired())
			require.NoError(t, err)
			subject, err := token.Claims.GetSubject()
			require.NoError(t, err)
			require.Equal(t, ClientID, subject)
			require.Equal(t, []string{"kafka"}, s.Scopes())
		})
	}
}
