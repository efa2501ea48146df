package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Bounds of a check. The whole is shorter than the 10 s for which the API waits for it.
const (
	checkTimeout     = 8 * time.Second
	checkStepTimeout = 2500 * time.Millisecond
	probeTimeout     = 1200 * time.Millisecond
	// The next bootstrap server is tried when the one before has failed, or after this.
	checkStagger = 750 * time.Millisecond
	// How many advertised addresses are tried at a time, and at most.
	advertisedParallel = 16
	advertisedMost     = 64
)

// Check connects to the cluster step by step, as the client would, and says
// what it found or which step failed and why. It takes at most 8 s, or until
// ctx ends.
//
// Bootstrap servers are tried in their order; the first that leads to metadata
// decides. If none does, the problem of the one that came furthest is returned.
// Then every advertised broker address must accept a connection.
func Check(ctx context.Context, c Cluster) (Info, *Problem) {
	info, p := c.check(ctx)
	return info, c.redact(p)
}

func (c Cluster) check(ctx context.Context) (Info, *Problem) {
	if p := c.validate(); p != nil {
		return Info{}, p
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s := c.Credentials.Get()
	found, p := c.checkBootstrap(ctx, s)
	if p != nil {
		return Info{}, p
	}
	return found.info, c.checkAdvertised(ctx, s, found)
}

// found is what one bootstrap server led to.
type found struct {
	info    Info
	address string
	brokers []string
}

type outcome struct {
	index int
	found found
	p     *Problem
}

func (c Cluster) checkBootstrap(ctx context.Context, s Security) (found, *Problem) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan outcome, len(c.BootstrapServers))
	start := func(i int) {
		go func() {
			f, p := c.checkServer(ctx, s, c.BootstrapServers[i])
			results <- outcome{i, f, p}
		}()
	}
	next, running := 0, 0
	begin := func() {
		if next < len(c.BootstrapServers) {
			start(next)
			next++
			running++
		}
	}
	begin()
	ticker := time.NewTicker(checkStagger)
	defer ticker.Stop()
	var best *outcome
	for running > 0 {
		select {
		case <-ticker.C:
			begin()
		case r := <-results:
			running--
			if r.p == nil {
				return r.found, nil
			}
			if best == nil || tells(r, *best) {
				best = &r
			}
			begin()
		}
	}
	return found{}, best.p
}

var stepOrder = map[Step]int{
	StepResolve: 0, StepConnect: 1, StepTLS: 2, StepAPIVersions: 3, StepAuthenticate: 4, StepMetadata: 5, StepAdvertised: 6,
}

// tells says whether a is more telling than b: it came further, or is as far and listed earlier.
func tells(a, b outcome) bool {
	if x, y := stepOrder[a.p.Step], stepOrder[b.p.Step]; x != y {
		return x > y
	}
	return a.index < b.index
}

// checkServer goes from the name of one bootstrap server to the cluster's metadata.
func (c Cluster) checkServer(ctx context.Context, s Security, address string) (found, *Problem) {
	w, versions, p := c.checkOpen(ctx, s, address)
	if p != nil {
		return found{}, p
	}
	defer w.close()
	if p := c.checkLogin(ctx, s, w); p != nil {
		return found{}, p
	}
	meta, err := w.metadata(ctx)
	if err != nil {
		return found{}, c.explainMetadata(ctx, s, w, err)
	}
	if len(meta.Brokers) == 0 {
		return found{}, &Problem{
			Code: Unreachable, Step: StepMetadata, Address: address,
			Message: w.peer.who() + " answered, but lists no brokers.",
			Remedy:  "Check that the cluster's controllers run and that brokers are registered with them.",
		}
	}
	f := found{address: address, info: Info{Version: version(versions), Brokers: len(meta.Brokers)}}
	if meta.ClusterID != nil {
		f.info.ClusterID = *meta.ClusterID
	}
	for _, b := range meta.Brokers {
		f.brokers = append(f.brokers, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	return f, nil
}

// checkOpen connects and asks for API versions.
func (c Cluster) checkOpen(ctx context.Context, s Security, address string) (*wire, *kmsg.ApiVersionsResponse, *Problem) {
	conn, failed := c.open(ctx, "tcp", address, s, checkStepTimeout, checkStepTimeout)
	if failed != nil {
		if failed.step == StepTLS {
			return nil, nil, c.explainHandshake(ctx, s, failed)
		}
		return nil, nil, explain(failed)
	}
	w := &wire{conn: conn, peer: c.peer(address, s), timeout: checkStepTimeout}
	versions, err := w.apiVersions(ctx)
	if err != nil {
		w.close()
		return nil, nil, c.explainVersions(ctx, s, w.peer, err)
	}
	return w, versions, nil
}

// checkLogin logs in where the protocol says so.
func (c Cluster) checkLogin(ctx context.Context, s Security, w *wire) *Problem {
	if !s.UsesSASL() {
		return nil
	}
	fail := func(err error) *Problem {
		if code, ok := errors.AsType[*kerr.Error](err); ok {
			if p := explainBroker(code, w.peer, err); p != nil {
				p.Address = w.peer.address
				return p
			}
		}
		return explain(&stepError{StepAuthenticate, w.peer, err})
	}
	offered, err := w.handshake(ctx, s.SASL.Mechanism)
	if errors.Is(err, kerr.UnsupportedSaslMechanism) {
		p := fail(err)
		if len(offered) > 0 {
			p.Message = fmt.Sprintf("%s does not offer the SASL mechanism %s; it offers %s.", w.peer.who(), s.SASL.Mechanism, strings.Join(offered, ", "))
			p.Remedy = "Set security.sasl.mechanism to one of those, with credentials for it."
		}
		return p
	}
	if err != nil {
		return fail(err)
	}
	session, first, err := c.login(ctx, s, w.peer.address)
	if err != nil {
		return fail(err)
	}
	if err := w.authenticate(ctx, session.Challenge, first); err != nil {
		if s.SASL.Mechanism == OAuthBearer && KindOf(err) == KindAuthentication {
			c.Credentials.tokens.rejected()
		}
		return fail(err)
	}
	return nil
}

// checkAdvertised tries each broker's advertised address: clients are sent there.
func (c Cluster) checkAdvertised(ctx context.Context, s Security, f found) *Problem {
	brokers := f.brokers[:min(len(f.brokers), advertisedMost)]
	problems := make([]*Problem, len(brokers))
	slots := make(chan struct{}, advertisedParallel)
	var all sync.WaitGroup
	for i, address := range brokers {
		if address == f.address {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w, _, p := c.checkOpen(ctx, s, address)
			if p == nil {
				w.close()
			}
			problems[i] = p
		})
	}
	all.Wait()
	for i, p := range problems {
		if p == nil {
			continue
		}
		advertised := *p
		advertised.Step = StepAdvertised
		advertised.Message = fmt.Sprintf("The bootstrap server %s works, but a broker that it advertises as %s does not: %s", f.address, brokers[i], p.Message)
		advertised.Remedy = "Correct advertised.listeners on that broker so that the workers can reach it, or open the way. " + p.Remedy
		return &advertised
	}
	return nil
}

var versionNumber = regexp.MustCompile(`v(\d+\.\d+)`)

// version guesses the release from what the broker can do, "" when it is like none.
func version(r *kmsg.ApiVersionsResponse) string {
	guess := kversion.FromApiVersionsResponse(r).VersionGuess()
	numbers := versionNumber.FindAllStringSubmatch(guess, -1)
	if len(numbers) == 0 {
		return ""
	}
	return numbers[0][1]
}
