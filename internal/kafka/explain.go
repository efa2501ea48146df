package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"syscall"
)

// who begins each message: the cluster's side, if any, and the address.
func (p peer) who() string {
	name := "The cluster"
	if p.side != "" {
		name = "The " + p.side + " cluster"
	}
	if p.address != "" {
		name += " at " + p.address
	}
	return name
}

// explain is the one place that turns a failed step into words. It always
// returns a problem.
func explain(e *stepError) *Problem {
	p := &Problem{Step: e.step, Address: e.peer.address, Err: e}
	switch e.step {
	case StepResolve:
		explainResolve(p, e)
	case StepConnect:
		explainConnect(p, e)
	case StepTLS:
		explainTLS(p, e)
	case StepAuthenticate:
		explainLogin(p, e)
	default:
		if errors.Is(e.err, errNotKafka) {
			return notKafka(e, speaksUnknown)
		}
		explainSilence(p, e)
	}
	return p
}

func explainResolve(p *Problem, e *stepError) {
	p.Code = Unreachable
	host, _, err := net.SplitHostPort(e.peer.address)
	dns, isDNS := errors.AsType[*net.DNSError](e.err)
	switch {
	case err != nil || !isDNS:
		p.Message = fmt.Sprintf("%s cannot be tried: the address is not of the form host:port.", e.peer.who())
		p.Remedy = "Write the address as host:port."
	case dns.IsNotFound:
		p.Message = fmt.Sprintf("%s cannot be found: the name %s is unknown to the worker's name server.", e.peer.who(), host)
		p.Remedy = "Check the spelling of the name, and that the network of the workers can resolve it."
	default:
		p.Message = fmt.Sprintf("%s cannot be found: the name server gave no answer for %s.", e.peer.who(), host)
		p.Remedy = "Check the name service of the workers' network; it is tried again by itself."
	}
}

func explainConnect(p *Problem, e *stepError) {
	p.Code = Unreachable
	switch {
	case errors.Is(e.err, syscall.ECONNREFUSED):
		p.Message = e.peer.who() + " refused the connection: nothing listens on that port."
		p.Remedy = "Start the broker, or correct host and port in bootstrapServers."
	case errors.Is(e.err, syscall.EHOSTUNREACH), errors.Is(e.err, syscall.ENETUNREACH), errors.Is(e.err, syscall.EADDRNOTAVAIL):
		p.Message = e.peer.who() + " has no route from the worker."
		p.Remedy = "Check routing between the workers' network and the cluster's."
	case isTimeout(e.err):
		p.Message = e.peer.who() + " did not answer the attempt to connect in time."
		p.Remedy = "Check that the host runs and that no firewall drops connections from the workers to this port."
	default:
		p.Message = e.peer.who() + " could not be connected to."
		p.Remedy = "Check host, port and the network between the workers and the cluster."
	}
}

// TLS alerts that we name, with their wire numbers.
const (
	alertHandshakeFailure    = 40
	alertBadCertificate      = 42
	alertUnsupportedCert     = 43
	alertRevoked             = 44
	alertExpired             = 45
	alertCertificateUnknown  = 46
	alertUnknownCA           = 48
	alertProtocolVersion     = 70
	alertCertificateRequired = 116
)

// remoteAlert returns the TLS alert that the other side sent. The library's
// type for it is unexported; its kind and the operation's name are not.
func remoteAlert(err error) (uint64, bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" || op.Err == nil {
		return 0, false
	}
	v := reflect.ValueOf(op.Err)
	if v.Kind() != reflect.Uint8 {
		return 0, false
	}
	return v.Uint(), true
}

func explainTLS(p *Problem, e *stepError) {
	p.Code = TLSFailed
	if alert, ok := remoteAlert(e.err); ok {
		explainAlert(p, e.peer, alert)
		return
	}
	if name, ok := errors.AsType[x509.HostnameError](e.err); ok {
		wanted := name.Host
		p.Message = fmt.Sprintf("%s shows a certificate that is not made out for %s.", e.peer.who(), wanted)
		p.Remedy = "Use an address that the certificate names, set security.tls.serverName to one of its names, or have it issued for this name."
		return
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](e.err); ok {
		p.Message = e.peer.who() + " shows a certificate from an authority that is not trusted."
		p.Remedy = "Put the certificate of the cluster's authority into security.tls.ca."
		if e.peer.customCA {
			p.Remedy = "Replace security.tls.ca: it does not hold the authority that issued the cluster's certificate."
		}
		return
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](e.err); ok {
		what := "is not valid"
		if bad.Reason == x509.Expired {
			what = "has expired or is not valid yet"
		}
		p.Message = fmt.Sprintf("%s shows a certificate that %s.", e.peer.who(), what)
		p.Remedy = "Renew the cluster's certificate, and check the clocks on both sides."
		return
	}
	if rec, ok := errors.AsType[tls.RecordHeaderError](e.err); ok {
		p.Code = NotKafka
		p.Message = e.peer.who() + " does not speak TLS on this port."
		if string(rec.RecordHeader[:4]) == "HTTP" {
			p.Message = e.peer.who() + " is a plain HTTP server, not a Kafka listener with TLS."
		}
		p.Remedy = "Use the port of the cluster's TLS listener, or a security.protocol without TLS."
		return
	}
	switch {
	case errors.Is(e.err, errPEM):
		p.Message = "The TLS settings of the service cannot be used: " + e.err.Error() + "."
		p.Remedy = "Replace the member of security.tls that is named, as PEM text."
	case isTimeout(e.err):
		p.Message = e.peer.who() + " accepted the connection but did not answer the TLS handshake in time."
		p.Remedy = "Check that the port belongs to a listener with TLS, and that nothing between holds the traffic back."
	case isClosed(e.err):
		p.Message = e.peer.who() + " closed the connection during the TLS handshake."
		p.Remedy = "Check that the port belongs to a listener with TLS; if it does not, use a security.protocol without TLS."
	default:
		p.Message = e.peer.who() + " did not complete the TLS handshake."
		p.Remedy = "Check certificates, authorities and TLS versions on both sides."
	}
}

func explainAlert(p *Problem, who peer, alert uint64) {
	p.Code = TLSFailed
	p.Step = StepTLS
	switch alert {
	case alertBadCertificate, alertUnsupportedCert, alertRevoked, alertExpired, alertCertificateUnknown, alertUnknownCA, alertCertificateRequired:
		if !who.clientCert {
			p.Message = who.who() + " asks for a client certificate, and the service has none."
			p.Remedy = "Set security.tls.cert and security.tls.key to a certificate that the cluster trusts."
			return
		}
		p.Message = fmt.Sprintf("%s refused the client certificate of the service (TLS alert %d).", who.who(), alert)
		p.Remedy = "Replace security.tls.cert and security.tls.key by a valid pair from an authority that the cluster trusts."
	case alertHandshakeFailure, alertProtocolVersion:
		p.Message = fmt.Sprintf("%s found no TLS version or cipher in common (TLS alert %d).", who.who(), alert)
		p.Remedy = "Allow TLS 1.2 or 1.3 on the cluster's listener; if it requires client certificates, set security.tls.cert and key."
	default:
		p.Message = fmt.Sprintf("%s ended the TLS handshake (TLS alert %d).", who.who(), alert)
		p.Remedy = "Look into the broker's log at this time, and check the TLS settings on both sides."
	}
}

func explainLogin(p *Problem, e *stepError) {
	p.Code = AuthFailed
	if t, ok := errors.AsType[*tokenError](e.err); ok {
		explainToken(p, e.peer, t)
		return
	}
	switch {
	case errors.Is(e.err, errServerProof):
		p.Message = fmt.Sprintf("%s answered the %s login in a way that the protocol does not allow, or does not know the password itself.", e.peer.who(), e.peer.mechanism)
		p.Remedy = "Check that the address belongs to the cluster meant, and look into the broker's log."
	case isTimeout(e.err):
		p.Code = Unreachable
		p.Message = e.peer.who() + " did not answer the login in time."
		p.Remedy = "Look into the broker's log; it may be overloaded or unable to reach what checks logins."
	case isClosed(e.err):
		p.Message = fmt.Sprintf("%s closed the connection during the %s login.", e.peer.who(), e.peer.mechanism)
		p.Remedy = "Check the mechanism and the credentials, and look into the broker's log."
	default:
		explainRefusedLogin(p, e.peer)
	}
}

func explainRefusedLogin(p *Problem, who peer) {
	p.Code, p.Step = AuthFailed, StepAuthenticate
	if who.mechanism == OAuthBearer {
		p.Message = who.who() + " refused the token (OAUTHBEARER)."
		p.Remedy = "Check that the broker accepts issuer, audience and scope of the tokens that security.sasl.tokenEndpoint issues."
		return
	}
	with := ""
	if who.mechanism != "" {
		with = " (" + who.mechanism + ")"
	}
	p.Message = who.who() + " refused user name or password" + with + "."
	p.Remedy = "Correct security.sasl.username and security.sasl.password, or create the user on the cluster for this mechanism."
}

func explainToken(p *Problem, who peer, t *tokenError) {
	p.Code, p.Step = AuthFailed, StepAuthenticate
	name := "the cluster"
	if who.side != "" {
		name = "the " + who.side + " cluster"
	}
	p.Message = fmt.Sprintf("No token for %s: %s.", name, t.Error())
	switch {
	case t.status == 400 || t.status == 401 || t.status == 403:
		p.Remedy = "Correct security.sasl.clientId, clientSecret and scope, or allow the client at the token endpoint."
	case t.status != 0:
		p.Remedy = "Check security.sasl.tokenEndpoint and the server behind it; it is tried again by itself."
	default:
		p.Remedy = "Check that security.sasl.tokenEndpoint is right and can be reached from the workers; it is tried again by itself."
	}
}

// explainSilence words failures of requests: ApiVersions, metadata, advertised addresses.
func explainSilence(p *Problem, e *stepError) {
	if alert, ok := remoteAlert(e.err); ok {
		explainAlert(p, e.peer, alert)
		return
	}
	p.Code = Unreachable
	switch {
	case isTimeout(e.err):
		p.Message = fmt.Sprintf("%s accepted the connection but gave no answer in time (step %s).", e.peer.who(), e.step)
		p.Remedy = "Check that the port belongs to a Kafka listener and that the broker is not overloaded."
	case isClosed(e.err):
		p.Message = fmt.Sprintf("%s closed the connection (step %s).", e.peer.who(), e.step)
		p.Remedy = "Check that security.protocol is that of the listener, and look into the broker's log."
	default:
		p.Message = fmt.Sprintf("%s could not be asked (step %s).", e.peer.who(), e.step)
		p.Remedy = "Look into the broker's log at this time."
	}
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
