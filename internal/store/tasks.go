package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// owner is what stands in the database for a worker: its name and this process's session. A worker that starts
// again under its old name is thus another holder: the old one's leases end when they end, and none is taken for its own.
func (s *Store) owner(worker string) string { return worker + ownerMark + s.session }

const ownerMark = "#"

// workerOf is the name in an owner.
func workerOf(owner string) string {
	if i := strings.LastIndex(owner, ownerMark); i >= 0 {
		return owner[:i]
	}
	return owner
}

// reap ends the leases of workers that did not renew in time. Everybody does it who needs free tasks,
// so that a dead worker's tasks wait for nobody in particular.
func reap(ctx context.Context, q *dbsqlc.Queries) error {
	dead, err := q.ReapWorkers(ctx)
	if err != nil || len(dead) == 0 {
		return err
	}
	freed, err := q.FreeTasksOf(ctx, dead)
	if err != nil {
		return err
	}
	return tasksFreed(ctx, q, freed)
}

// tasksFreed removes what is no task any more and wakes the workers for the rest.
func tasksFreed(ctx context.Context, q *dbsqlc.Queries, freed []uuid.UUID) error {
	if len(freed) == 0 {
		return nil
	}
	if err := q.TrimTasks(ctx, freed); err != nil {
		return err
	}
	hints := make([]flows.Notification, 0, len(freed))
	for _, id := range freed {
		hints = append(hints, flows.Notification{Kind: "task", ID: id})
	}
	return notify(ctx, q, hints)
}

// Beat implements flows.WorkerStore.
func (s *Store) Beat(ctx context.Context, worker string, ttl time.Duration) (alive int, err error) {
	err = s.inTx(ctx, "beat", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := reap(ctx, q); err != nil {
			return err
		}
		if err := q.BeatWorker(ctx, dbsqlc.BeatWorkerParams{Worker: s.owner(worker), Ttl: ttl}); err != nil {
			return err
		}
		n, err := q.CountWorkers(ctx)
		alive = int(n)
		return err
	})
	return alive, err
}

// AcquireTasks implements flows.WorkerStore.
func (s *Store) AcquireTasks(ctx context.Context, worker string, ttl time.Duration, limit int) ([]flows.TaskLease, error) {
	var leases []flows.TaskLease
	err := s.inTx(ctx, "acquire tasks", pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(ctx context.Context, q *dbsqlc.Queries) error {
		leases = nil
		if err := reap(ctx, q); err != nil {
			return err
		}
		if err := q.BeatWorker(ctx, dbsqlc.BeatWorkerParams{Worker: s.owner(worker), Ttl: ttl}); err != nil {
			return err
		}
		rows, err := q.AcquireTasks(ctx, dbsqlc.AcquireTasksParams{Worker: s.owner(worker), MaxTasks: int64(limit)})
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := q.AddHeld(ctx, dbsqlc.AddHeldParams{Worker: s.owner(worker), Added: int32(len(rows))}); err != nil { //nolint:gosec // at most limit
			return err
		}
		ids := make([]uuid.UUID, 0, len(rows))
		for _, r := range rows {
			ids = append(ids, r.FlowID)
		}
		specs, err := readSpecs(ctx, q, ids)
		if err != nil {
			return err
		}
		got := make([]flows.TaskLease, 0, len(rows))
		for _, r := range rows {
			spec, ok := specs[r.FlowID]
			if !ok {
				continue // deleted at this moment, and the task with it
			}
			got = append(got, flows.TaskLease{
				LeaseKey: flows.LeaseKey{FlowID: r.FlowID, Task: int(r.Task), Epoch: r.Epoch}, Spec: spec,
			})
		}
		leases, err = s.layOut(ctx, q, worker, got)
		return err
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// layOut notes under which number of tasks the leases were given, and gives back those whose flow is held under
// another one. It needs what it reads to be newer than the locks on the tasks, so a statement of its own for each.
func (s *Store) layOut(ctx context.Context, q *dbsqlc.Queries, worker string, got []flows.TaskLease) ([]flows.TaskLease, error) {
	keys := make([]flows.LeaseKey, 0, len(got))
	p := dbsqlc.SetTaskLayoutsParams{}
	for _, l := range got {
		keys = append(keys, l.LeaseKey)
		p.Layouts = append(p.Layouts, int32(l.Spec.Flow.TasksMax)) //nolint:gosec // the column it comes from is as wide
	}
	c := toDBKeys(keys)
	p.FlowIds, p.Tasks = c.flows, c.tasks
	if err := q.SetTaskLayouts(ctx, p); err != nil {
		return nil, err
	}
	mixed, err := q.MixedFlows(ctx, c.flows)
	if err != nil || len(mixed) == 0 {
		return got, err
	}
	var leases []flows.TaskLease
	var back []flows.LeaseKey
	for _, l := range got {
		if slices.Contains(mixed, l.FlowID) {
			back = append(back, l.LeaseKey)
		} else {
			leases = append(leases, l)
		}
	}
	c = toDBKeys(back)
	_, err = q.ReleaseTasks(ctx, dbsqlc.ReleaseTasksParams{Worker: s.owner(worker), FlowIds: c.flows, Tasks: c.tasks, Epochs: c.epochs})
	return leases, err
}

// keyColumns are lease keys as arrays.
type keyColumns struct {
	flows  []uuid.UUID
	tasks  []int32
	epochs []int64
}

func toDBKeys(keys []flows.LeaseKey) keyColumns {
	c := keyColumns{make([]uuid.UUID, 0, len(keys)), make([]int32, 0, len(keys)), make([]int64, 0, len(keys))}
	for _, k := range keys {
		c.flows, c.tasks, c.epochs = append(c.flows, k.FlowID), append(c.tasks, int32(k.Task)), append(c.epochs, k.Epoch)
	}
	return c
}

// RenewTasks implements flows.WorkerStore. The renewal itself is the update of one row. The rest reads what the
// holder must know, and writes only for tasks that the holder left out or names for the first time.
func (s *Store) RenewTasks(ctx context.Context, worker string, ttl time.Duration, keys []flows.LeaseKey) ([]flows.RenewedLease, error) {
	named := make(map[flows.LeaseKey]bool, len(keys))
	for _, k := range keys {
		named[k] = true
	}
	owner := s.owner(worker)
	var out []flows.RenewedLease
	err := s.inTx(ctx, "renew tasks", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		out = nil
		n, err := q.RenewWorker(ctx, dbsqlc.RenewWorkerParams{Worker: owner, Ttl: ttl, Held: int32(len(keys))}) //nolint:gosec // of one process
		if err != nil || n == 0 {
			return err // no row: the lease ran out, everything is lost
		}
		rows, err := q.OwnedTasks(ctx, dbsqlc.OwnedTasksParams{Worker: owner, Ttl: ttl})
		if err != nil {
			return err
		}
		var confirm, doubt, forget []flows.LeaseKey
		for _, r := range rows {
			key := flows.LeaseKey{FlowID: r.FlowID, Task: int(r.Task), Epoch: r.Epoch}
			switch {
			case named[key]:
				out = append(out, flows.RenewedLease{
					LeaseKey: key, FlowRevision: r.Revision, TasksMax: int(r.TasksMax), Enabled: r.Enabled,
					SourceCredentialsRevision: r.SourceCredentialsRevision,
					TargetCredentialsRevision: r.TargetCredentialsRevision,
				})
				if !r.Confirmed {
					confirm = append(confirm, key)
				}
			case r.Forgotten:
				forget = append(forget, key)
			case r.Confirmed:
				doubt = append(doubt, key)
			}
		}
		if err := confirmTasks(ctx, q, owner, confirm, true); err != nil {
			return err
		}
		if err := confirmTasks(ctx, q, owner, doubt, false); err != nil {
			return err
		}
		return releaseTasks(ctx, q, owner, forget)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func confirmTasks(ctx context.Context, q *dbsqlc.Queries, owner string, keys []flows.LeaseKey, confirmed bool) error {
	if len(keys) == 0 {
		return nil
	}
	c := toDBKeys(keys)
	return q.ConfirmTasks(ctx, dbsqlc.ConfirmTasksParams{
		Worker: owner, FlowIds: c.flows, Tasks: c.tasks, Epochs: c.epochs, Confirmed: confirmed,
	})
}

func releaseTasks(ctx context.Context, q *dbsqlc.Queries, owner string, keys []flows.LeaseKey) error {
	if len(keys) == 0 {
		return nil
	}
	c := toDBKeys(keys)
	freed, err := q.ReleaseTasks(ctx, dbsqlc.ReleaseTasksParams{Worker: owner, FlowIds: c.flows, Tasks: c.tasks, Epochs: c.epochs})
	if err != nil {
		return err
	}
	return tasksFreed(ctx, q, freed)
}

// ReleaseTasks implements flows.WorkerStore. A worker that holds nothing any more does not
// count for the others' share until it shows up again, so that they can take what it gave back.
func (s *Store) ReleaseTasks(ctx context.Context, worker string, keys []flows.LeaseKey) error {
	return s.inTx(ctx, "release tasks", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := releaseTasks(ctx, q, s.owner(worker), keys); err != nil {
			return err
		}
		return q.RemoveIdleWorker(ctx, s.owner(worker))
	})
}

// ReportTasks implements flows.WorkerStore. A status that cannot be encoded keeps no other from being stored.
func (s *Store) ReportTasks(ctx context.Context, worker string, reports []flows.TaskReport) ([]flows.LeaseKey, error) {
	var keys []flows.LeaseKey
	var statuses []string
	var observed []time.Time
	var bad error
	for _, r := range reports {
		if r.Unchanged {
			keys, statuses, observed = append(keys, r.LeaseKey), append(statuses, ""), append(observed, r.Status.ObservedAt)
			continue
		}
		doc, err := json.Marshal(r.Status)
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("encode the status of task %d of flow %s: %w", r.Task, r.FlowID, err))
			continue
		}
		keys, statuses, observed = append(keys, r.LeaseKey), append(statuses, string(storable(doc))), append(observed, r.Status.ObservedAt)
	}
	stored := make(map[flows.LeaseKey]bool, len(keys))
	if len(keys) > 0 {
		c := toDBKeys(keys)
		err := s.inTx(ctx, "report tasks", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
			rows, err := q.ReportTasks(ctx, dbsqlc.ReportTasksParams{
				Worker: s.owner(worker), FlowIds: c.flows, Tasks: c.tasks, Epochs: c.epochs, Statuses: statuses, Observed: observed,
			})
			clear(stored)
			for _, r := range rows {
				stored[flows.LeaseKey{FlowID: r.FlowID, Task: int(r.Task), Epoch: r.Epoch}] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var lost []flows.LeaseKey
	for _, k := range keys {
		if !stored[k] {
			lost = append(lost, k)
		}
	}
	return lost, translate("report tasks", bad)
}

// hold locks the task for the rest of the transaction and answers CodeLeaseLost when it is not the worker's.
func (s *Store) hold(ctx context.Context, q *dbsqlc.Queries, worker string, k flows.LeaseKey) error {
	_, err := q.HoldTask(ctx, dbsqlc.HoldTaskParams{FlowID: k.FlowID, Task: int32(k.Task), Worker: s.owner(worker), Epoch: k.Epoch})
	return leaseLost(err)
}

func leaseLost(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return &flows.Error{Code: flows.CodeLeaseLost, Message: "the lease is not this worker's any more"}
	}
	return err
}
