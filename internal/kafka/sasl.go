package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// liveMechanism is a SASL mechanism that reads the current credentials at each
// login. A replacement between Name and Authenticate fails one login, which the
// next connection repairs.
type liveMechanism struct{ cluster Cluster }

var _ sasl.Mechanism = liveMechanism{}

// Name implements sasl.Mechanism.
func (m liveMechanism) Name() string { return m.cluster.Credentials.Get().SASL.Mechanism }

// Authenticate implements sasl.Mechanism.
func (m liveMechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	s := m.cluster.Credentials.Get()
	session, first, err := m.cluster.login(ctx, s, host)
	if err != nil {
		return nil, nil, &stepError{StepAuthenticate, m.cluster.peer(host, s), err}
	}
	return saslSession{session, m.cluster.peer(host, s)}, first, nil
}

// login starts a session of s's mechanism.
func (c Cluster) login(ctx context.Context, s Security, host string) (sasl.Session, []byte, error) {
	var m sasl.Mechanism
	switch s.SASL.Mechanism {
	case Plain:
		m = plain.Auth{User: s.SASL.Username, Pass: s.SASL.Password}.AsMechanism()
	case ScramSHA256:
		m = scram.Auth{User: s.SASL.Username, Pass: s.SASL.Password}.AsSha256Mechanism()
	case ScramSHA512:
		m = scram.Auth{User: s.SASL.Username, Pass: s.SASL.Password}.AsSha512Mechanism()
	case OAuthBearer:
		token, err := c.Credentials.tokens.get(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		c.Credentials.secrets.handOut(token)
		m = oauth.Auth{Token: token}.AsMechanism()
	default:
		return nil, nil, fmt.Errorf("unknown SASL mechanism %q", s.SASL.Mechanism)
	}
	return m.Authenticate(ctx, host)
}

// errServerProof says that the server did not prove that it knows the password, or answered outside the protocol.
var errServerProof = errors.New("the server's part of the login is wrong")

// saslSession gives errors of the dialogue their step.
type saslSession struct {
	inner sasl.Session
	peer  peer
}

// Challenge implements sasl.Session.
func (s saslSession) Challenge(b []byte) (bool, []byte, error) {
	done, next, err := s.inner.Challenge(b)
	if err != nil {
		// The cause quotes what the server sent, which may echo what we sent.
		return false, nil, &stepError{StepAuthenticate, s.peer, errServerProof}
	}
	return done, next, nil
}
