package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// answers is what a listener turned out to speak.
type answers int

const (
	speaksUnknown answers = iota
	speaksTLS
	speaksHTTP
	speaksKafka // in plaintext
)

// explainVersions words a failure of the first request. Whoever closes or stays silent is probed for what it is.
func (c Cluster) explainVersions(ctx context.Context, s Security, who peer, err error) *Problem {
	step := &stepError{StepAPIVersions, who, err}
	if alert, ok := remoteAlert(err); ok {
		p := &Problem{Address: who.address, Err: err}
		explainAlert(p, who, alert)
		return p
	}
	if code, ok := errors.AsType[*kerr.Error](err); ok {
		return &Problem{
			Code: NotKafka, Step: StepAPIVersions, Address: who.address, Err: err,
			Message: who.who() + " refused to name the API versions that it knows (" + code.Message + ").",
			Remedy:  "Check that the address is a broker's client listener of Kafka 2.8 or later, not a controller's.",
		}
	}
	foreign, isForeign := errors.AsType[*foreignError](err)
	if isForeign && bytes.HasPrefix(foreign.head, []byte("HTTP/")) {
		return notKafka(step, speaksHTTP)
	}
	if s.UsesTLS() {
		if isForeign {
			return notKafka(step, speaksUnknown)
		}
		if isClosed(err) {
			if alert, ok := c.alertOfTLS12(ctx, s, who.address); ok {
				p := &Problem{Address: who.address, Err: err}
				explainAlert(p, who, alert)
				return p
			}
		}
		return c.explainQuiet(ctx, step, httpOverTLS)
	}
	// A TLS server answers bytes that are no handshake with an alert record.
	if isForeign && len(foreign.head) >= 3 && foreign.head[0] == 0x15 && foreign.head[1] == 3 {
		return notKafka(step, speaksTLS)
	}
	if isForeign {
		return notKafka(step, speaksUnknown)
	}
	return c.explainQuiet(ctx, step, probePlain)
}

// alertOfTLS12 shakes hands once more with TLS 1.2, where a refused client certificate ends the handshake. In TLS 1.3 the
// refusal comes later, and a reset may have overtaken it.
func (c Cluster) alertOfTLS12(ctx context.Context, s Security, address string) (uint64, bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return 0, false
	}
	cfg, err := s.tlsConfig(host)
	if err != nil {
		return 0, false
	}
	cfg.MaxVersion = tls.VersionTLS12
	conn, err := probeDial(ctx, address)
	if err != nil {
		return 0, false
	}
	defer func() { _ = conn.Close() }()
	alert, ok := remoteAlert(tls.Client(conn, cfg).HandshakeContext(ctx))
	return alert, ok && alert != alertProtocolVersion
}

// explainQuiet words a listener that closed or said nothing, after asking it in other tongues.
func (c Cluster) explainQuiet(ctx context.Context, step *stepError, probe func(context.Context, string) answers) *Problem {
	if spoken := probe(ctx, step.peer.address); spoken != speaksUnknown {
		return notKafka(step, spoken)
	}
	return explain(step)
}

// explainHandshake words a failed TLS handshake; where it looks as if the other side has no TLS, it is asked in plaintext.
func (c Cluster) explainHandshake(ctx context.Context, s Security, failed *stepError) *Problem {
	record, noTLS := errors.AsType[tls.RecordHeaderError](failed.err)
	if noTLS && bytes.HasPrefix(record.RecordHeader[:], []byte("HTTP")) {
		return explain(failed)
	}
	if !noTLS && !isClosed(failed.err) && !isTimeout(failed.err) {
		return explain(failed)
	}
	if _, ok := remoteAlert(failed.err); ok {
		return explain(failed)
	}
	if c.speaksPlainKafka(ctx, s, failed.peer.address) {
		return notKafka(failed, speaksKafka)
	}
	if httpPlain(ctx, failed.peer.address) == speaksHTTP {
		return notKafka(failed, speaksHTTP)
	}
	return explain(failed)
}

func notKafka(e *stepError, spoken answers) *Problem {
	p := &Problem{Code: NotKafka, Step: e.step, Address: e.peer.address, Err: e.err}
	switch spoken {
	case speaksTLS:
		p.Code, p.Step = TLSFailed, StepTLS
		p.Message = e.peer.who() + " expects TLS on this port, but the service says " + protocolName(e.peer.protocol) + "."
		p.Remedy = "Set security.protocol to SSL or SASL_SSL, or use the port of the plaintext listener."
	case speaksHTTP:
		p.Message = e.peer.who() + " is an HTTP server, not a Kafka broker."
		p.Remedy = "Use the address of a Kafka listener (often port 9092 to 9094) instead of a web or REST port."
	case speaksKafka:
		p.Code, p.Step = TLSFailed, StepTLS
		p.Message = e.peer.who() + " is a Kafka listener without TLS, but the service says " + protocolName(e.peer.protocol) + "."
		p.Remedy = "Set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of the TLS listener."
	default:
		p.Message = e.peer.who() + " answers, but does not speak Kafka's protocol."
		p.Remedy = "Check host and port: another service listens there."
	}
	return p
}

func protocolName(p string) string {
	if p == "" {
		return Plaintext
	}
	return p
}

// explainMetadata words a failed metadata request. A listener that wants a login closes the connection at this point.
func (c Cluster) explainMetadata(ctx context.Context, s Security, w *wire, err error) *Problem {
	if !s.UsesSASL() && isClosed(err) {
		if offered := c.offeredMechanisms(ctx, s, w.peer.address); len(offered) > 0 {
			p := &Problem{
				Code: AuthFailed, Step: StepAuthenticate, Address: w.peer.address, Err: err,
				Message: w.peer.who() + " requires a login, and the service has none.",
				Remedy:  "Set security.protocol to SASL_PLAINTEXT",
			}
			if s.UsesTLS() {
				p.Remedy = "Set security.protocol to SASL_SSL"
			}
			p.Remedy += " and security.sasl to credentials for one of: "
			for i, m := range offered {
				if i > 0 {
					p.Remedy += ", "
				}
				p.Remedy += m
			}
			p.Remedy += "."
			return p
		}
	}
	if code, ok := errors.AsType[*kerr.Error](err); ok {
		if p := explainBroker(code, w.peer, err); p != nil {
			p.Address = w.peer.address
			return p
		}
	}
	if errors.Is(err, errNotKafka) {
		return notKafka(&stepError{StepMetadata, w.peer, err}, speaksUnknown)
	}
	return explain(&stepError{StepMetadata, w.peer, err})
}

// offeredMechanisms asks a listener on a new connection which logins it knows; none when it wants no login.
func (c Cluster) offeredMechanisms(ctx context.Context, s Security, address string) []string {
	conn, failed := c.open(ctx, "tcp", address, s, probeTimeout, probeTimeout)
	if failed != nil {
		return nil
	}
	w := &wire{conn: conn, peer: c.peer(address, s), timeout: probeTimeout}
	defer w.close()
	// No mechanism has this name, so that every broker answers with its list.
	offered, err := w.handshake(ctx, "NONE")
	if !errors.Is(err, kerr.UnsupportedSaslMechanism) {
		return nil
	}
	return offered
}

// speaksPlainKafka asks for API versions without TLS. No secret is sent.
func (c Cluster) speaksPlainKafka(ctx context.Context, s Security, address string) bool {
	s.Protocol = Plaintext
	conn, failed := c.open(ctx, "tcp", address, s, probeTimeout, probeTimeout)
	if failed != nil {
		return false
	}
	w := &wire{conn: conn, timeout: probeTimeout}
	defer w.close()
	_, err := w.apiVersions(ctx)
	return err == nil
}

// probePlain finds out what a port that did not answer a Kafka request in plaintext speaks: TLS, HTTP, or neither.
func probePlain(ctx context.Context, address string) answers {
	conn, err := probeDial(ctx, address)
	if err != nil {
		return speaksUnknown
	}
	// Only whether it speaks TLS is asked: nothing is sent over this connection, no certificate shown.
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	handshake := client.HandshakeContext(ctx)
	_ = conn.Close()
	if handshake == nil {
		return speaksTLS
	}
	if _, ok := remoteAlert(handshake); ok {
		return speaksTLS
	}
	return httpPlain(ctx, address)
}

func httpPlain(ctx context.Context, address string) answers {
	conn, err := probeDial(ctx, address)
	if err != nil {
		return speaksUnknown
	}
	defer func() { _ = conn.Close() }()
	return askHTTP(conn)
}

func httpOverTLS(ctx context.Context, address string) answers {
	conn, err := probeDial(ctx, address)
	if err != nil {
		return speaksUnknown
	}
	defer func() { _ = conn.Close() }()
	// As in probePlain: no secret goes over this connection.
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if client.HandshakeContext(ctx) != nil {
		return speaksUnknown
	}
	return askHTTP(client)
}

func probeDial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func askHTTP(conn io.ReadWriter) answers {
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return speaksUnknown
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(conn, head); err == nil && string(head) == "HTTP/" {
		return speaksHTTP
	}
	return speaksUnknown
}
