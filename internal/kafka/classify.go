package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Classify turns an error of a live client into a problem, or nil when it is
// not about the connection (an ended context, a closed client, an error about
// one topic or group other than a refused right). Clients often lose the cause
// or the address; Diagnose finds them.
func Classify(err error) *Problem { return Cluster{}.Classify(err) }

// Classify is the package's Classify with messages that name the cluster's side.
func (c Cluster) Classify(err error) *Problem { return c.redact(c.classify(err)) }

func (c Cluster) classify(err error) *Problem {
	if err == nil || errors.Is(err, kgo.ErrClientClosed) {
		return nil
	}
	if step, ok := errors.AsType[*stepError](err); ok {
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return explain(step)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	who := peer{side: c.Side}
	if c.Credentials != nil {
		who = c.peer("", c.Credentials.Get())
	}
	if code, ok := errors.AsType[*kerr.Error](err); ok {
		return explainBroker(code, who, err)
	}
	if alert, ok := remoteAlert(err); ok {
		p := &Problem{Err: err}
		explainAlert(p, who, alert)
		return p
	}
	if _, ok := errors.AsType[*tokenError](err); ok {
		return explain(&stepError{StepAuthenticate, who, err})
	}
	if isTLS(err) {
		return explain(&stepError{StepTLS, who, err})
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Addr != nil {
			who.address = op.Addr.String()
		}
		if op.Op != "dial" {
			return explain(&stepError{StepAPIVersions, who, err})
		}
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			return explain(&stepError{StepResolve, who, err})
		}
		return explain(&stepError{StepConnect, who, err})
	}
	if isClosed(err) {
		return explain(&stepError{StepAPIVersions, who, err})
	}
	return nil
}

func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok
}

// explainBroker words the broker's codes that are about the connection as a whole, or about rights.
func explainBroker(code *kerr.Error, who peer, err error) *Problem {
	p := &Problem{Err: err}
	switch kindOfCode(code.Code) {
	case KindAuthorization:
		p.Code, p.Step = Forbidden, StepMetadata
		p.Message = fmt.Sprintf("%s refused a request for lack of rights (%s).", who.who(), code.Message)
		p.Remedy = "Grant the service's user the rights that the documentation lists for its role."
		return p
	case KindAuthentication:
		switch code {
		case kerr.UnsupportedSaslMechanism:
			p.Code, p.Step = AuthFailed, StepAuthenticate
			p.Message = fmt.Sprintf("%s does not offer the SASL mechanism %s.", who.who(), who.mechanism)
			p.Remedy = "Set security.sasl.mechanism to one that the listener offers."
		case kerr.IllegalSaslState:
			p.Code, p.Step = AuthFailed, StepAuthenticate
			p.Message = who.who() + " does not expect a login on this listener."
			p.Remedy = "Use a security.protocol without SASL, or the port of the listener with SASL."
		default:
			explainRefusedLogin(p, who)
		}
		return p
	}
	return nil
}

// Diagnose finds out why a client keeps failing with err: it runs Check, whose
// problem is exact; when the check succeeds, what Classify makes of err, which
// may be nil (then the trouble was passing, or is not the connection).
func Diagnose(ctx context.Context, c Cluster, err error) *Problem {
	if _, p := Check(ctx, c); p != nil && ctx.Err() == nil {
		return p
	}
	return c.Classify(err)
}

// Changed is the problem of a cluster whose id is not the one that was registered.
func (c Cluster) Changed(expected, found string) *Problem {
	address := ""
	if len(c.BootstrapServers) > 0 {
		address = c.BootstrapServers[0]
	}
	return c.redact(&Problem{
		Code: ClusterChanged, Step: StepMetadata, Address: address,
		Message: fmt.Sprintf("%s has the cluster id %s, but was registered as %s: it is another cluster.", peer{side: c.Side, address: address}.who(), found, expected),
		Remedy:  "Correct bootstrapServers; if the cluster was replaced on purpose, register it as a new service and make a new flow.",
	})
}
