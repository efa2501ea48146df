package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store/dbsqlc"
)

// Leave implements flows.WorkerStore.
func (s *Store) Leave(ctx context.Context, worker string) error {
	return s.inTx(ctx, "leave", pgx.TxOptions{}, func(ctx context.Context, q *dbsqlc.Queries) error {
		return q.LeaveWorker(ctx, s.owner(worker))
	})
}

// MoveTask implements flows.WorkerStore. Loads as of the last renewals, which cost a look at the workers' rows, say
// whether it is worth to look closely. The close look is at both workers' tasks, while nobody else can decide about
// the one that is to get something.
func (s *Store) MoveTask(ctx context.Context, worker string, several bool) (*flows.LeaseKey, error) {
	owner := s.owner(worker)
	var out *flows.LeaseKey
	err := s.inTx(ctx, "move a task", pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(ctx context.Context, q *dbsqlc.Queries) error {
		out = nil
		peers, err := q.Peers(ctx)
		if err != nil {
			return err
		}
		moving, err := q.MovingTasks(ctx, owner)
		if err != nil {
			return err
		}
		if len(moving) > 0 {
			for _, m := range moving {
				if takes(peers, m.MovingTo) {
					out = &flows.LeaseKey{FlowID: m.FlowID, Task: int(m.Task), Epoch: m.Epoch}
					return nil
				}
			}
			return q.StayTasks(ctx, owner) // whoever was to have them is gone
		}
		peer, err := moveTo(ctx, q, owner, peers, several)
		if err != nil || peer == "" {
			return err
		}
		locked, err := q.LockPeer(ctx, peer)
		if err != nil || len(locked) == 0 {
			return err
		}
		rows, err := q.MarkMove(ctx, dbsqlc.MarkMoveParams{Worker: owner, Peer: peer})
		for _, r := range rows {
			out = &flows.LeaseKey{FlowID: r.FlowID, Task: int(r.Task), Epoch: r.Epoch}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func takes(peers []dbsqlc.PeersRow, id string) bool {
	for _, p := range peers {
		if p.ID == id {
			return true
		}
	}
	return false
}

// moveTo answers who should probably get a task of the owner's: the least loaded worker if it has at least two fewer,
// else one that has at least two fewer of some flow; "": nobody.
func moveTo(ctx context.Context, q *dbsqlc.Queries, owner string, peers []dbsqlc.PeersRow, several bool) (string, error) {
	var least *dbsqlc.PeersRow
	var settled []string
	mine := int64(-1)
	for i, p := range peers {
		switch {
		case p.ID == owner:
			mine = p.Load
		case p.Settled:
			settled = append(settled, p.ID)
			if least == nil {
				least = &peers[i]
			}
		}
	}
	switch {
	case mine < 0 || least == nil: // a worker that is not among the living decides nothing
		return "", nil
	case mine >= least.Load+2:
		return least.ID, nil
	case !several:
		return "", nil
	}
	ids, err := q.SpreadTarget(ctx, dbsqlc.SpreadTargetParams{Worker: owner, Settled: settled})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}
