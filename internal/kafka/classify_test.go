package kafka

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestClassifyKnowsConnectionProblemsFromOthers(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	cases := []struct {
		name string
		err  error
		code ProblemCode // "": none
		step Step
	}{
		{"nothing", nil, "", ""},
		{"ended context", fmt.Errorf("x: %w", context.Canceled), "", ""},
		{"deadline of the caller", context.DeadlineExceeded, "", ""},
		{"closed client", kgo.ErrClientClosed, "", ""},
		{"other", errors.New("x"), "", ""},
		{"leader moved", kerr.NotLeaderForPartition, "", ""},
		{"refused", fmt.Errorf("unable to dial: %w", refused), Unreachable, StepConnect},
		{"unknown name", &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}, Unreachable, StepResolve},
		{"reset", &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, Unreachable, StepAPIVersions},
		{"eof", io.EOF, Unreachable, StepAPIVersions},
		{"authority", x509.UnknownAuthorityError{}, TLSFailed, StepTLS},
		{"name", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, TLSFailed, StepTLS},
		{"login", fmt.Errorf("sasl: %w", kerr.SaslAuthenticationFailed), AuthFailed, StepAuthenticate},
		{"mechanism", kerr.UnsupportedSaslMechanism, AuthFailed, StepAuthenticate},
		{"topic right", kerr.TopicAuthorizationFailed, Forbidden, StepMetadata},
		{"token endpoint", &tokenError{endpoint: "http://t", status: 401, code: "invalid_client"}, AuthFailed, StepAuthenticate},
		{"own step", &stepError{StepTLS, peer{address: "a:1"}, io.EOF}, TLSFailed, StepTLS},
		{"ended while dialling", &stepError{StepConnect, peer{}, context.Canceled}, "", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := Classify(tc.err)
			if tc.code == "" {
				require.Nil(t, p)
				return
			}
			require.NotNil(t, p)
			require.Equal(t, tc.code, p.Code)
			require.Equal(t, tc.step, p.Step)
			require.NotEmpty(t, p.Message)
			require.NotEmpty(t, p.Remedy)
			require.ErrorIs(t, p, tc.err)
		})
	}
}

func TestALiveClientsErrorNamesAddressAndStep(t *testing.T) {
	t.Parallel()
	address := refused(t)
	c := at(Security{}, address)
	client, err := NewClient(c, "test", nil, kgo.RetryTimeout(time.Second))
	require.NoError(t, err)
	defer client.Close()
	err = client.Ping(t.Context())
	require.Error(t, err)
	p := c.Classify(err)
	require.NotNil(t, p)
	require.Equal(t, Unreachable, p.Code)
	require.Contains(t, p.Message, "source cluster at "+address+" refused")
}

func TestDiagnoseFindsWhatTheClientsErrorHides(t *testing.T) {
	t.Parallel()
	p := Diagnose(t.Context(), at(Security{}, httpServer(t, nil)), context.DeadlineExceeded)
	require.NotNil(t, p)
	require.Equal(t, NotKafka, p.Code)

	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	defer fake.Close()
	c := at(Security{}, fake.ListenAddrs()...)
	require.Nil(t, Diagnose(t.Context(), c, context.DeadlineExceeded), "the trouble has passed")
	require.Equal(t, Forbidden, Diagnose(t.Context(), c, kerr.ClusterAuthorizationFailed).Code)
}

func TestAnotherClusterIsNamedWithBothIds(t *testing.T) {
	t.Parallel()
	p := at(Security{}, "b:9092").Changed("old", "new")
	require.Equal(t, ClusterChanged, p.Code)
	require.Contains(t, p.Message, "old")
	require.Contains(t, p.Message, "new")
}

func TestSecurityIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := Security{SASL: SASL{Password: "hunter2", ClientSecret: "hunter3"}, TLS: TLS{Key: "hunter4"}}
	var sink testWriter
	log := slog.New(slog.NewJSONHandler(&sink, nil))
	log.Info("x", slog.Any("security", s), slog.Any("pointer", &s), slog.Any("in", Cluster{Credentials: NewCredentials(s)}))
	text := fmt.Sprintf("%v %+v %#v %s %v", s, s, s, s, []Security{s}) + string(sink)
	require.NotContains(t, text, "hunter")
}

type testWriter []byte

func (w *testWriter) Write(b []byte) (int, error) { *w = append(*w, b...); return len(b), nil }

func TestMetricsCountConnectionsBytesAndErrorsWithBoundedLabels(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg)
	require.NoError(t, err)
	again, err := NewMetrics(reg)
	require.NoError(t, err, "a second client of the process shares the metrics")
	require.Equal(t, m.sent, again.sent)

	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	defer fake.Close()
	ping := func(address string) {
		opts, err := at(Security{}, address).Options("test", nil, m.Hook("source"))
		require.NoError(t, err)
		client, err := kgo.NewClient(append(opts, kgo.RetryTimeout(500*time.Millisecond))...)
		require.NoError(t, err)
		defer client.Close()
		_ = client.Ping(t.Context())
	}
	ping(fake.ListenAddrs()[0])
	ping(refused(t))
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			key := f.GetName()
			for _, l := range metric.GetLabel() {
				require.Contains(t, []string{"side", "result", "operation", "kind"}, l.GetName())
				key += " " + l.GetValue()
			}
			values[key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	require.Positive(t, values["mirrorflow_kafka_connects_total ok source"])
	require.Positive(t, values["mirrorflow_kafka_connects_total failed source"])
	require.Positive(t, values["mirrorflow_kafka_sent_bytes_total source"])
	require.Positive(t, values["mirrorflow_kafka_received_bytes_total source"])
	require.Positive(t, values["mirrorflow_kafka_errors_total UNREACHABLE connect source"])
	require.Zero(t, values["mirrorflow_kafka_connections source"], "all are closed again")
}

func TestBackoffGrowsToTwoSeconds(t *testing.T) {
	t.Parallel()
	for tries := range 100 {
		d := backoff(tries)
		require.Positive(t, d)
		require.LessOrEqual(t, d, 2*time.Second)
	}
	require.Greater(t, backoff(30), 1500*time.Millisecond)
}
