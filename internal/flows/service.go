package flows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// GetService implements API.
func (m *Manager) GetService(ctx context.Context, project, id uuid.UUID) (Service, error) {
	return m.store.GetService(ctx, project, id)
}

// ListServices implements API.
func (m *Manager) ListServices(ctx context.Context, project uuid.UUID, f ServiceFilter, p Page) (List[Service], error) {
	return pageOf(p, func(s Service) uuid.UUID { return s.ID }, func(after uuid.UUID, limit int) ([]Service, error) {
		return m.store.ListServices(ctx, project, f, after, limit)
	})
}

// CreateService implements API.
func (m *Manager) CreateService(ctx context.Context, project uuid.UUID, in ServiceInput, force bool) (Service, error) {
	in = normaliseService(in)
	if err := validateService(in, nil).err(); err != nil {
		return Service{}, err
	}
	sealed, err := m.seal(nil, in.Secrets)
	if err != nil {
		return Service{}, err
	}
	id, err := newID()
	if err != nil {
		return Service{}, err
	}
	s := Service{
		ID: id, ProjectID: project, Engine: in.Engine, Description: in.Description,
		BootstrapServers: []string{}, Sealed: sealed,
		Plan: in.Plan, Version: in.Version, NodesPattern: in.NodesPattern,
		Status: StatusReady, Revision: 1, CredentialsRevision: 1,
	}
	if in.Engine != EngineKafka {
		return s, m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
			stored, err := tx.InsertService(ctx, s)
			if err == nil {
				s = stored
			}
			return err
		})
	}
	s.BootstrapServers, s.Security = in.BootstrapServers, in.Security
	s.Alias = generatedAlias(project, id)
	if in.Alias != nil {
		s.Alias = *in.Alias
	}
	check, err := m.checkCluster(ctx, s)
	if err != nil {
		return Service{}, err
	}
	defer m.dropJob(ctx, check.job)
	var out Service
	err = m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		stored, err := m.storeChecked(ctx, tx, s, check, force, tx.InsertService)
		if err == nil {
			out = stored
		}
		return err
	})
	return out, err
}

// UpdateService implements API.
func (m *Manager) UpdateService(ctx context.Context, project, id uuid.UUID, in ServiceInput, ifRevision int64, force bool) (Service, error) {
	// Somebody else may change the service while the cluster is tried. Who named no revision
	// does not care for what was there, so the whole is done again.
	for range 3 {
		s, again, err := m.updateServiceOnce(ctx, project, id, in, ifRevision, force)
		if !again {
			return s, err
		}
	}
	return Service{}, &Error{Code: CodeConflict, Message: "others keep changing this service; try again"}
}

func (m *Manager) updateServiceOnce(ctx context.Context, project, id uuid.UUID, in ServiceInput, ifRevision int64, force bool) (out Service, again bool, err error) {
	old, err := m.store.GetService(ctx, project, id)
	if err != nil {
		return Service{}, false, err
	}
	if err := checkRevision(old.Revision, ifRevision); err != nil {
		return Service{}, false, err
	}
	s, err := m.changedService(old, in)
	if err != nil {
		return Service{}, false, err
	}
	change := compareConnection(old, s, in.Secrets)
	var check clusterCheck
	if change != connectionSame {
		s.CredentialsRevision++
		if check, err = m.checkCluster(ctx, s); err != nil {
			return Service{}, false, err
		}
		defer m.dropJob(ctx, check.job)
	}
	err = m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		now, err := tx.GetService(ctx, id)
		if err != nil {
			return err
		}
		again = false
		if now.Revision != old.Revision {
			if ifRevision == AnyRevision {
				again = true
				return nil
			}
			return checkRevision(now.Revision, ifRevision)
		}
		if change == connectionSame && sameWords(s, old) {
			out = now // nothing to do
			return nil
		}
		if s.Alias != old.Alias {
			if err := refuseAliasChange(ctx, tx, id); err != nil {
				return err
			}
		}
		if change == connectionSame {
			out, err = tx.UpdateService(ctx, s)
			return err
		}
		if err := tx.DropChecks(ctx, id); err != nil {
			return err
		}
		if change == connectionMoved {
			if err := tx.TouchFlows(ctx, id); err != nil {
				return err
			}
		}
		out, err = m.storeChecked(ctx, tx, s, check, force, tx.UpdateService)
		return err
	})
	return out, again, err
}

// changedService overlays in on old and validates the whole. Nothing of in has left for anywhere when it refuses.
func (m *Manager) changedService(old Service, in ServiceInput) (Service, error) {
	if in.Engine == "" {
		in.Engine = old.Engine
	}
	in = normaliseService(in)
	if in.Engine != old.Engine {
		return Service{}, Invalid("/engine", fmt.Sprintf("cannot be changed; it is %s", old.Engine))
	}
	if err := append(validateService(in, old.Sealed), refuseMovedSecrets(old, in)...).err(); err != nil {
		return Service{}, err
	}
	sealed, err := m.seal(old.Sealed, in.Secrets)
	if err != nil {
		return Service{}, err
	}
	s := old
	s.Description, s.Plan, s.Version, s.NodesPattern = in.Description, in.Plan, in.Version, in.NodesPattern
	s.Sealed = sealed
	if in.Engine == EngineKafka {
		s.BootstrapServers, s.Security = in.BootstrapServers, in.Security
		if in.Alias != nil {
			s.Alias = *in.Alias
		}
	}
	return s, nil
}

func refuseAliasChange(ctx context.Context, tx Tx, service uuid.UUID) error {
	_, used, err := tx.UsesOfService(ctx, service)
	if err != nil || len(used) == 0 {
		return err
	}
	return &Error{
		Code:    CodeConflict,
		Message: "the alias is part of topic names and cannot change while used by " + named("flow", used),
		Fields:  []FieldError{{Pointer: "/alias", Message: "cannot change while a flow uses it"}},
	}
}

// DeleteService implements API.
func (m *Manager) DeleteService(ctx context.Context, project, id uuid.UUID, ifRevision int64) error {
	return m.store.Change(ctx, project, func(ctx context.Context, tx Tx) error {
		s, err := tx.GetService(ctx, id)
		if err != nil {
			return err
		}
		if err := checkRevision(s.Revision, ifRevision); err != nil {
			return err
		}
		integrations, used, err := tx.UsesOfService(ctx, id)
		if err != nil {
			return err
		}
		if len(integrations)+len(used) > 0 {
			var by []string
			if len(used) > 0 {
				by = append(by, named("flow", used))
			}
			if len(integrations) > 0 {
				by = append(by, named("integration", integrations))
			}
			return &Error{Code: CodeConflict, Message: "the service is used by " + strings.Join(by, " and ")}
		}
		return tx.DeleteService(ctx, id)
	})
}

// named lists ids in a sentence, the first ten by name.
func named(noun string, ids []uuid.UUID) string {
	const most = 10
	words := make([]string, 0, most)
	for _, id := range ids[:min(len(ids), most)] {
		words = append(words, id.String())
	}
	if len(ids) > 1 {
		noun += "s"
	}
	s := noun + " " + strings.Join(words, ", ")
	if len(ids) > most {
		s += fmt.Sprintf(" and %d more", len(ids)-most)
	}
	return s
}

// seal applies a change to sealed secrets; the old map stays as it is.
func (m *Manager) seal(old map[SecretField]SealedSecret, change SecretChange) (map[SecretField]SealedSecret, error) {
	sealed := map[SecretField]SealedSecret{}
	maps.Copy(sealed, old)
	var f fieldErrors
	for _, field := range slices.Sorted(maps.Keys(change)) {
		v := change[field]
		if v == nil {
			delete(sealed, field)
			continue
		}
		box, err := m.sealer.Seal(*v)
		if err != nil {
			f.addf(secretPointer(field), "cannot be stored: %s", err)
			continue
		}
		sealed[field] = box
	}
	return sealed, f.err()
}

type connectionChange int

const (
	connectionSame        connectionChange = iota
	connectionCredentials                  // only who we are or whom we trust
	connectionMoved                        // where or how: tasks must start again
)

func compareConnection(a, b Service, secrets SecretChange) connectionChange {
	if !slices.Equal(a.BootstrapServers, b.BootstrapServers) || a.Security.Protocol != b.Security.Protocol ||
		mechanism(a.Security) != mechanism(b.Security) || serverName(a.Security) != serverName(b.Security) {
		return connectionMoved
	}
	if len(secrets) > 0 || !equalPointee(a.Security.TLS, b.Security.TLS) || !equalPointee(a.Security.SASL, b.Security.SASL) {
		return connectionCredentials
	}
	return connectionSame
}

// sameWords tells whether what has nothing to do with the connection is equal.
func sameWords(a, b Service) bool {
	return a.Alias == b.Alias && a.Description == b.Description && a.Plan == b.Plan && a.Version == b.Version &&
		sameJSON(a.NodesPattern, b.NodesPattern)
}

func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func mechanism(s Security) string {
	if s.SASL == nil {
		return ""
	}
	return s.SASL.Mechanism
}

func serverName(s Security) string {
	if s.TLS == nil {
		return ""
	}
	return s.TLS.ServerName
}

func equalPointee[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// clusterCheck is a check that was asked for: its result, or the job that may still bring one.
type clusterCheck struct {
	job     uuid.UUID // uuid.Nil when none was made
	payload json.RawMessage
	result  *CheckServiceResult // nil: none in time
}

// checkCluster has a worker try the service's cluster and waits for the answer.
func (m *Manager) checkCluster(ctx context.Context, s Service) (clusterCheck, error) {
	payload, err := json.Marshal(CheckServicePayload{BootstrapServers: s.BootstrapServers, Security: s.Security, Sealed: s.Sealed})
	if err != nil {
		return clusterCheck{}, internal("encode a check", err)
	}
	job, err := m.store.AddJob(ctx, JobCheckService, payload, m.checkTimeout+jobGrace)
	if err != nil {
		return clusterCheck{}, err
	}
	c := clusterCheck{job: job, payload: payload}
	raw, err := m.store.WaitJob(ctx, job, m.checkTimeout)
	if err == nil {
		c.result, err = decodeCheck(raw)
	}
	if err != nil {
		m.dropJob(ctx, job)
		return clusterCheck{}, err
	}
	return c, nil
}

// jobGrace is how much longer than the waiting request a job may be started.
const jobGrace = 20 * time.Second

func decodeCheck(raw json.RawMessage) (*CheckServiceResult, error) {
	if raw == nil {
		return nil, nil
	}
	var r CheckServiceResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, internal("decode the result of a check", err)
	}
	return &r, nil
}

// dropJob removes a job that nobody waits for, also when the caller has gone. A job bound to a service stays.
func (m *Manager) dropJob(ctx context.Context, job uuid.UUID) {
	if job == uuid.Nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := m.store.DropJob(ctx, job); err != nil {
		// It is purged later all the same.
		m.logger.WarnContext(ctx, "dropping a job failed", slog.String("job_id", job.String()), slog.Any("error", err))
	}
}

// storeChecked writes s with what the check found. Without a result the check goes on, bound to the
// service in the same transaction; a failed and forced one comes again later.
func (m *Manager) storeChecked(ctx context.Context, tx Tx, s Service, c clusterCheck, force bool,
	write func(context.Context, Service) (Service, error),
) (Service, error) {
	s.Status, s.StatusDetail = StatusPending, "no worker has checked the cluster yet"
	if c.result != nil {
		if err := takeCheck(ctx, tx, &s, *c.result, force); err != nil {
			return Service{}, err
		}
	}
	stored, err := write(ctx, s)
	if err != nil {
		return Service{}, err
	}
	switch {
	case c.result == nil:
		raw, err := tx.BindCheck(ctx, c.job, s.ID)
		if CodeOf(err) == CodeNotFound {
			// Purged while the transaction waited: ask anew.
			return stored, tx.AddCheck(ctx, s.ID, c.payload, 0)
		}
		if err != nil || raw == nil {
			return stored, err
		}
		// The result came between the end of the wait and this transaction.
		late, err := decodeCheck(raw)
		if err != nil {
			return Service{}, err
		}
		return m.storeLate(ctx, tx, stored, *late, c, force)
	case c.result.Step != "":
		return stored, tx.AddCheck(ctx, s.ID, c.payload, recheckDelay)
	}
	return stored, nil
}

// storeLate writes the result that came at the last moment over the row just written.
func (m *Manager) storeLate(ctx context.Context, tx Tx, s Service, r CheckServiceResult, c clusterCheck, force bool) (Service, error) {
	if err := takeCheck(ctx, tx, &s, r, force); err != nil {
		return Service{}, err
	}
	stored, err := tx.UpdateService(ctx, s)
	if err == nil && r.Step != "" {
		err = tx.AddCheck(ctx, s.ID, c.payload, recheckDelay)
	}
	return stored, err
}

// recheckDelay is how soon a service that was registered by force is tried again for the first time.
const recheckDelay = 10 * time.Second

// ServiceStatusOf says what a check's result makes of a service's status.
func ServiceStatusOf(r CheckServiceResult) (ResourceStatus, string) {
	if r.Step == "" {
		return StatusReady, ""
	}
	return StatusError, checkSentence(r)
}

// applyCheck puts the finding into s and answers the refusal for a caller who did not force.
func applyCheck(s *Service, r CheckServiceResult) error {
	s.Status, s.StatusDetail = ServiceStatusOf(r)
	if r.Step == "" {
		s.KafkaClusterID, s.KafkaVersion = r.KafkaClusterID, r.KafkaVersion
		return nil
	}
	return &Error{Code: CodeCheckFailed, Message: s.StatusDetail, Err: errors.New(r.Code)}
}

// takeCheck puts the finding into s, which still has the cluster id that is stored, unless it is to be refused.
func takeCheck(ctx context.Context, tx Tx, s *Service, r CheckServiceResult, force bool) error {
	if s.KafkaClusterID != "" && r.KafkaClusterID != "" && r.KafkaClusterID != s.KafkaClusterID {
		_, used, err := tx.UsesOfService(ctx, s.ID)
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return &Error{Code: CodeConflict, Message: AnotherCluster(s.KafkaClusterID, r.KafkaClusterID) + "; it is used by " + named("flow", used)}
		}
	}
	if err := applyCheck(s, r); err != nil && !force {
		return err
	}
	return refuseSameCluster(ctx, tx, *s)
}

// AnotherCluster says that a service that flows use must not become another cluster: positions and topics of the
// flows are those of the cluster that they know.
func AnotherCluster(known, found string) string {
	return fmt.Sprintf("these servers are Kafka cluster %s, and the service is cluster %s, which cannot change while flows use it: "+
		"register the new cluster as a service of its own", found, known)
}

func checkSentence(r CheckServiceResult) string {
	s := "step " + r.Step + " failed"
	if r.Address != "" {
		s += " at " + r.Address
	}
	if r.Code != "" {
		s += " (" + r.Code + ")"
	}
	if r.Message != "" {
		s += ": " + strings.TrimSuffix(r.Message, ".")
	}
	if r.Remedy != "" {
		s += ". " + r.Remedy
	}
	return s
}

// refuseSameCluster keeps the two ends of existing flows on two clusters.
func refuseSameCluster(ctx context.Context, tx Tx, s Service) error {
	if s.KafkaClusterID == "" {
		return nil
	}
	routes, err := tx.FlowsAt(ctx, s.ID)
	if err != nil {
		return err
	}
	for _, r := range routes {
		other := r.TargetCluster
		if r.TargetService == s.ID {
			other = r.SourceCluster
		}
		if other == s.KafkaClusterID {
			return &Error{Code: CodeConflict, Message: fmt.Sprintf(
				"this is Kafka cluster %s, which is the other end of flow %s already; a flow onto its own source never ends", s.KafkaClusterID, r.FlowID)}
		}
	}
	return nil
}
