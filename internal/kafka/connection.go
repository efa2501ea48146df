package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// maxLifetime caps what brokers say of a login's end, so that it can be added to a time.
const maxLifetime = 365 * 24 * time.Hour

// APIVersions are the versions a broker knows, lowest and highest, by request key.
type APIVersions map[int16][2]int16

// Highest is the highest version of a request that the broker knows and that lies between low and high; false when there
// is none.
func (v APIVersions) Highest(key, low, high int16) (int16, bool) {
	r, ok := v[key]
	if !ok || r[1] < low || r[0] > high {
		return 0, false
	}
	return min(high, r[1]), true
}

// Connection is a connection to a broker, logged in, on which nothing is under way.
type Connection struct {
	net.Conn
	Versions APIVersions
	// Expires is when the broker ends the login, and with it the connection; zero: never. Connections are replaced before.
	Expires time.Time
}

// DialAuthenticated opens a connection of one's own to a broker at address (host:port): TLS, API versions and login as the
// current credentials say. clientID appears in the broker's logs and quotas. The steps together are bounded by ctx, and
// each of them by a few seconds.
//
// Errors are for Classify and KindOf, as those of a client are. The caller closes the connection.
func (c Cluster) DialAuthenticated(ctx context.Context, address, clientID string) (*Connection, error) {
	s := c.Credentials.Get()
	conn, failed := c.open(ctx, "tcp", address, s, connectTimeout, tlsTimeout)
	if failed != nil {
		return nil, failed
	}
	w := &wire{conn: conn, peer: c.peer(address, s), timeout: requestOverhead, clientID: clientID}
	// An ended context ends the step under way.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	expires, err := c.greet(ctx, s, w)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		w.close()
		return nil, errors.Join(err, ctx.Err())
	}
	return &Connection{Conn: conn, Versions: w.versions, Expires: expires}, nil
}

// greet asks for the API versions and logs in where the protocol says so.
func (c Cluster) greet(ctx context.Context, s Security, w *wire) (expires time.Time, err error) {
	at := func(step Step, err error) error {
		if code, ok := errors.AsType[*kerr.Error](err); ok {
			return fmt.Errorf("%s %s: %w", step, w.peer.address, code)
		}
		return &stepError{step, w.peer, err}
	}
	if _, err := w.apiVersions(ctx); err != nil {
		return expires, at(StepAPIVersions, err)
	}
	if !s.UsesSASL() {
		return expires, nil
	}
	if _, err := w.handshake(ctx, s.SASL.Mechanism); err != nil {
		return expires, at(StepAuthenticate, err)
	}
	session, first, err := c.login(ctx, s, w.peer.address)
	if err != nil {
		return expires, at(StepAuthenticate, err)
	}
	began := time.Now()
	if err := w.authenticate(ctx, session.Challenge, first); err != nil {
		if s.SASL.Mechanism == OAuthBearer && KindOf(err) == KindAuthentication {
			c.Credentials.tokens.rejected()
		}
		return expires, at(StepAuthenticate, err)
	}
	if w.lifetime > 0 {
		expires = began.Add(w.lifetime)
	}
	return expires, nil
}
