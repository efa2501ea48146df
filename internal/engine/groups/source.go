package groups

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchBatch is how many groups one OffsetFetch asks for (it is split by coordinator below).
	fetchBatch = 500
	// restPerLook bounds how many groups without an offset that matters are looked at again in one refresh, so that
	// thousands of them cost the source little (longest not looked at first).
	restPerLook = 1000
)

// listed is a group as the source lists it.
type listed struct{ name, state string }

// listGroups lists the groups that MM2 would touch: classic and consumer groups whose protocol is "consumer", or none
// (offsets committed without membership). complete is false when some broker did not answer.
func (r *Room) listGroups(ctx context.Context) (all []listed, complete bool, err error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrListGroupsRequest()
	req.TypesFilter = []string{"classic", "consumer"}
	var errs []error
	for _, shard := range r.cfg.Source.RequestSharded(ctx, req) {
		if shard.Err != nil {
			errs = append(errs, shard.Err)
			continue
		}
		resp, ok := shard.Resp.(*kmsg.ListGroupsResponse)
		if !ok {
			errs = append(errs, fmt.Errorf("unexpected response %T", shard.Resp))
			continue
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			errs = append(errs, err)
		}
		for _, g := range resp.Groups {
			// Brokers before 3.8 do not know types; then the protocol alone tells.
			if (g.GroupType == "" || g.GroupType == "classic" || g.GroupType == "consumer") && (g.ProtocolType == "" || g.ProtocolType == "consumer") {
				all = append(all, listed{g.Group, g.GroupState})
			}
		}
	}
	return all, len(errs) == 0, errors.Join(errs...)
}

// refresh finds new, changed and deleted groups. After a partial answer nothing is taken for deleted.
func (r *Room) refresh(ctx context.Context) error {
	r.fetching.Lock()
	defer r.fetching.Unlock()
	now := r.cfg.Now()
	all, complete, err := r.listGroups(ctx)
	r.mu.Lock()
	r.refreshed = now
	r.mu.Unlock()
	if err != nil {
		r.clusterFailed("source", phaseList, "listing the groups", err)
		if len(all) == 0 {
			return fmt.Errorf("list source groups: %w", err)
		}
	} else {
		r.troubles.clear(everything, phaseList)
	}
	states := make(map[string]string, len(all))
	for _, g := range all {
		v, filterErr := r.cfg.GroupFilter.Match(g.name)
		if filterErr != nil {
			r.groupFailed(g.name, phaseMatch, "No pattern decided about the group %s: matching took too long.", filterErr, "Simplify the patterns in groups and groupExcludeList.")
			continue
		}
		r.troubles.clear(g.name, phaseMatch)
		if v.Passes {
			states[g.name] = g.state
		}
	}
	look := r.plan(states, complete, now)
	found, errs := r.fetchOffsets(ctx, look)
	r.mu.Lock()
	for _, name := range look {
		commits, ok := found[name]
		switch {
		case !ok:
			// Its offsets could not be read: looked at again next time.
		case len(commits) > 0:
			r.kept[name] = &group{name: name, state: states[name], commits: commits}
			delete(r.rest, name)
		default:
			r.rest[name] = now
		}
	}
	r.mu.Unlock()
	return errors.Join(append(errs, err)...)
}

// plan drops what is gone, updates states, and returns the groups whose offsets decide whether they are kept.
func (r *Room) plan(states map[string]string, complete bool, now time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone []string
	for name, g := range r.kept {
		if s, ok := states[name]; ok {
			g.state = s
		} else if complete {
			// Deleted on the source: the target's group and its checkpoints stay as they are, as in MM2.
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		r.drop(name)
	}
	if complete {
		maps.DeleteFunc(r.rest, func(name string, _ time.Time) bool { _, ok := states[name]; return !ok })
	}
	var look, again []string
	for name := range states {
		if _, ok := r.kept[name]; ok {
			continue
		}
		if _, ok := r.rest[name]; ok {
			again = append(again, name)
			continue
		}
		look = append(look, name)
	}
	slices.SortFunc(again, func(a, b string) int { return r.rest[a].Compare(r.rest[b]) })
	return append(look, again[:min(len(again), restPerLook)]...)
}

// drop forgets a group and its conditions; mu is held.
func (r *Room) drop(name string) {
	delete(r.kept, name)
	delete(r.settled, name)
	r.troubles.forget(name)
}

// fetch reads the kept groups' offsets unless that was done within maxAge.
func (r *Room) fetch(ctx context.Context, maxAge time.Duration) error {
	r.fetching.Lock()
	defer r.fetching.Unlock()
	now := r.cfg.Now()
	r.mu.Lock()
	if maxAge > 0 && now.Sub(r.fetched) < maxAge {
		r.mu.Unlock()
		return nil
	}
	names := slices.Sorted(maps.Keys(r.kept))
	r.mu.Unlock()
	found, errs := r.fetchOffsets(ctx, names)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(errs) == 0 {
		r.fetched = now
	}
	for _, name := range names {
		g := r.kept[name]
		if g == nil {
			continue
		}
		commits, ok := found[name]
		if !ok {
			g.err = errStale
			continue
		}
		g.commits, g.err = commits, nil
		if len(commits) == 0 {
			// Its offsets expired or were deleted.
			r.drop(name)
			r.rest[name] = now
		}
	}
	return errors.Join(errs...)
}

// errStale marks a group whose offsets on the source could not be read in the last round.
var errStale = errors.New("the group's offsets on the source could not be read")

// fetchOffsets reads committed offsets in batches and keeps those on topics that the filter accepts. Groups that could
// not be read are missing in the answer; their failures are conditions, and are returned. When none of a batch could be
// read because of the cluster, the others are not asked for.
func (r *Room) fetchOffsets(ctx context.Context, names []string) (map[string]map[partition]commit, []error) {
	admin := kadm.NewClient(r.cfg.Source)
	out := make(map[string]map[partition]commit, len(names))
	failed := map[string]error{}
	var away error
	for batch := range slices.Chunk(names, fetchBatch) {
		if away != nil {
			for _, name := range batch {
				failed[name] = away
			}
			continue
		}
		c, cancel := r.bounded(ctx)
		answers := admin.FetchManyOffsets(c, batch...)
		cancel()
		read := false
		for _, name := range batch {
			answer, ok := answers[name]
			err := answer.Err
			if !ok {
				err = kerr.UnknownServerError
			}
			if err == nil {
				err = firstPartitionError(answer.Fetched)
			}
			if errors.Is(err, kerr.GroupIDNotFound) {
				err = nil
			}
			if err != nil {
				failed[name] = err
				read = read || !whole(err)
				continue
			}
			read = true
			out[name] = r.relevant(answer.Fetched)
		}
		if !read {
			away = failed[batch[0]]
		}
	}
	return out, r.fetchFailures(names, failed)
}

func firstPartitionError(os kadm.OffsetResponses) error {
	for _, o := range os.Sorted() {
		// A topic that is gone has no say about the others.
		if o.Err != nil && !errors.Is(o.Err, kerr.UnknownTopicOrPartition) {
			return o.Err
		}
	}
	return nil
}

func (r *Room) relevant(os kadm.OffsetResponses) map[partition]commit {
	commits := map[partition]commit{}
	for topic, ps := range os {
		if !r.cfg.TopicFilter(topic) {
			continue
		}
		for id, o := range ps {
			// -1: nothing committed. 0 is an offset like any other.
			if o.Err == nil && o.At >= 0 {
				commits[partition{topic, id}] = commit{o.At, o.Metadata}
			}
		}
	}
	return commits
}
