package worker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
)

const (
	// connectionsLinger is how long connections stay when the last task that uses them has ended.
	connectionsLinger = 30 * time.Second
	// credentialsLinger is the same for credentials, which must not go before the connections that hold them.
	credentialsLinger = 2 * connectionsLinger
)

// shares holds one set of credentials for each service and way to reach it, so that the worker's tasks can share
// connections.
type shares struct {
	mu   sync.Mutex
	used map[string]*share
}

// share is a service's credentials with all tasks that use them.
type share struct {
	*kafka.Credentials
	// key is kafka.Cluster.Key.
	key string

	of       *shares
	revision int64 // of the service's credentials
	users    int
}

// take makes the caller a user of a service's credentials, opened as security; it calls leave in the end.
func (s *shares) take(service flows.Service, security kafka.Security) *share {
	// What cannot be changed on live connections is part of the key.
	key := fmt.Sprintf("%s|%s|sasl=%t", service.ID, strings.Join(service.BootstrapServers, ","), security.UsesSASL())
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.used[key]
	if c == nil {
		c = &share{Credentials: kafka.NewCredentials(security), key: key, of: s, revision: service.CredentialsRevision}
		s.used[key] = c
	}
	c.users++
	c.setLocked(security, service.CredentialsRevision)
	return c
}

// set replaces the credentials for all, unless they are of a later revision already.
func (c *share) set(security kafka.Security, revision int64) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.setLocked(security, revision)
}

func (c *share) setLocked(security kafka.Security, revision int64) {
	if revision > c.revision {
		c.revision = revision
		c.Set(security)
	}
}

// leave ends one use.
func (c *share) leave() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	time.AfterFunc(credentialsLinger, func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if c.users == 0 && c.of.used[c.key] == c {
			delete(c.of.used, c.key)
		}
	})
}

// trust is until when the worker may write anything at all: as long as any of its leases may be relied on. Connections are
// shared by all its tasks, and each task looks at its own lease besides.
type trust struct {
	began time.Time
	until atomic.Int64 // ns since began
}

// extend notes a term that was won.
func (t *trust) extend(tm term) {
	until := int64(tm.trustedUntil().Sub(t.began))
	for {
		was := t.until.Load()
		if until <= was || t.until.CompareAndSwap(was, until) {
			return
		}
	}
}

// holds tells whether anything may be written. It looks at the clock itself.
func (t *trust) holds() bool { return int64(time.Since(t.began)) < t.until.Load() }
