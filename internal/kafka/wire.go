package kafka

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkClientID is what brokers log for connection checks.
const checkClientID = "mirrorflow-check"

// maxAnswer bounds an answer of the check. Metadata without topics are small;
// other protocols' first bytes, read as a length, are far above.
const maxAnswer = 8 << 20

// errNotKafka is wrapped when the bytes that came back are no Kafka response.
var errNotKafka = errors.New("not a Kafka response")

// foreignError carries the first bytes of something that is not Kafka.
type foreignError struct{ head []byte }

func (e *foreignError) Error() string { return fmt.Sprintf("%v: begins with %x", errNotKafka, e.head) }
func (e *foreignError) Unwrap() error { return errNotKafka }

// wire speaks single Kafka requests over one connection, each bounded in time.
// The check uses it instead of a client because a client retries, hides the
// step, and cannot show what came back.
type wire struct {
	conn     net.Conn
	peer     peer
	timeout  time.Duration
	clientID string // default checkClientID
	next     int32
	versions APIVersions // nil before ApiVersions
	// lifetime is how long the login counts, as the broker said; 0: for ever.
	lifetime time.Duration
}

func (w *wire) close() { _ = w.conn.Close() }

// version picks the highest version that both sides know; false when the broker does not know the request.
func (w *wire) version(req kmsg.Request, ours int16) (int16, bool) {
	r, ok := w.versions[req.Key()]
	if !ok || r[0] > ours {
		return 0, false
	}
	return min(ours, r[1]), true
}

// call sends req at its set version and reads its response.
func (w *wire) call(ctx context.Context, req kmsg.Request, resp kmsg.Response) error {
	body, err := w.exchange(ctx, req)
	if err != nil {
		return err
	}
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(body); err != nil {
		return &foreignError{body[:min(len(body), 16)]}
	}
	return nil
}

// exchange sends req and returns the body of the answer, without its header.
func (w *wire) exchange(ctx context.Context, req kmsg.Request) ([]byte, error) {
	w.next++
	deadline := time.Now().Add(w.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := w.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	out := kmsg.NewRequestFormatter(kmsg.FormatterClientID(cmp.Or(w.clientID, checkClientID))).AppendRequest(nil, req, w.next)
	if _, err := w.conn.Write(out); err != nil {
		return nil, err
	}
	var head [8]byte
	n, err := io.ReadFull(w.conn, head[:])
	if err != nil {
		if n >= 3 && (errors.Is(err, io.ErrUnexpectedEOF) || isTimeout(err)) {
			// Too short for Kafka, but something: a TLS alert has seven bytes.
			return nil, &foreignError{head[:n]}
		}
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:4]))
	if size < 4 || size > maxAnswer || int32(binary.BigEndian.Uint32(head[4:])) != w.next {
		more := make([]byte, 64)
		// Best effort: what follows names the protocol.
		_ = w.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		m, _ := w.conn.Read(more)
		return nil, &foreignError{append(head[:], more[:m]...)}
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(w.conn, body); err != nil {
		return nil, err
	}
	// ApiVersions responses have the old header at every version, so that any client can read them.
	if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, &foreignError{body[:min(len(body), 16)]}
		}
		body = body[1:]
	}
	return body, nil
}

// apiVersions asks for the broker's version ranges; it must come first.
func (w *wire) apiVersions(ctx context.Context) (*kmsg.ApiVersionsResponse, error) {
	for _, v := range []int16{3, 0} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = softwareName, softwareVersion()
		req.SetVersion(v)
		body, err := w.exchange(ctx, req)
		if err != nil {
			return nil, err
		}
		if len(body) < 2 {
			return nil, &foreignError{body}
		}
		if code := int16(binary.BigEndian.Uint16(body)); code == kerr.UnsupportedVersion.Code && v > 0 {
			continue
		} else if err := kerr.ErrorForCode(code); err != nil {
			return nil, err
		}
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		if err := resp.ReadFrom(body); err != nil || len(resp.ApiKeys) == 0 {
			return nil, &foreignError{body[:min(len(body), 16)]}
		}
		w.versions = make(APIVersions, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			w.versions[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
		}
		return resp, nil
	}
	return nil, kerr.UnsupportedVersion
}

// handshake names a mechanism; offered are those that the listener has, when the broker says so.
func (w *wire) handshake(ctx context.Context, mechanism string) (offered []string, err error) {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = 1, mechanism
	resp := kmsg.NewPtrSASLHandshakeResponse()
	if err := w.call(ctx, req, resp); err != nil {
		return nil, err
	}
	return resp.SupportedMechanisms, kerr.ErrorForCode(resp.ErrorCode)
}

// authenticate carries a session's dialogue to its end.
func (w *wire) authenticate(ctx context.Context, step func([]byte) (bool, []byte, error), write []byte) error {
	for done := false; !done || len(write) > 0; {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SASLAuthBytes = write
		v, ok := w.version(req, 2)
		if !ok {
			return kerr.UnsupportedVersion
		}
		req.SetVersion(v)
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		if err := w.call(ctx, req, resp); err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		w.lifetime = time.Duration(min(resp.SessionLifetimeMillis, maxLifetime.Milliseconds())) * time.Millisecond
		write = nil
		if !done {
			var err error
			if done, write, err = step(resp.SASLAuthBytes); err != nil {
				return errServerProof
			}
		}
	}
	return nil
}

// metadata asks for brokers and cluster id, no topics.
func (w *wire) metadata(ctx context.Context) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	v, ok := w.version(req, 9)
	if !ok {
		return nil, kerr.UnsupportedVersion
	}
	req.SetVersion(v)
	resp := kmsg.NewPtrMetadataResponse()
	if err := w.call(ctx, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}
