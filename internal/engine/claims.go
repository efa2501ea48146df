package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/engine/report"
	"github.com/mirrorflow/mirrorflow/internal/engine/topics"
)

// claim asks for remote topics that are not ours yet, and leaves out those of others.
func (t *Task) claim(ctx context.Context, d topics.Discovery) (wanted []topics.Selected, excluded []report.Excluded) {
	sel := d.Topics
	if t.cfg.Owners == nil {
		return sel, nil
	}
	var ask []string
	for _, s := range sel {
		if !t.claimed[s.Remote] {
			ask = append(ask, s.Remote)
		}
	}
	denied := map[string]string{}
	owned := map[string]bool{} // source topics that another flow owns, or did when that could be asked last
	if len(ask) > 0 {
		var err error
		c, cancel := context.WithTimeout(ctx, adminTimeout)
		denied, err = t.cfg.Owners.Claim(c, t.targetID, ask)
		cancel()
		if err != nil {
			// Not decided: what we hold goes on, the rest waits for the next refresh.
			t.log.Warn("remote topics could not be claimed", slog.Int("topics", len(ask)), slog.Any("error", err))
			for _, s := range sel {
				owned[s.Topic.Name] = !t.claimed[s.Remote]
			}
		} else {
			for _, name := range ask {
				if _, no := denied[name]; !no {
					t.claimed[name] = true
					t.granted = time.Now()
				}
			}
		}
	}
	for _, s := range sel {
		sub := report.Subject{Topic: s.Topic.Name, Partition: -1}
		owner, no := denied[s.Remote]
		switch {
		case t.claimed[s.Remote]:
			wanted = append(wanted, s)
		case no && s.Heartbeats:
			// Flows of one pair share its heartbeats: one copy is enough, and not having it is no fault.
			excluded = append(excluded, report.Excluded{Name: s.Topic.Name, Reason: "mirrored by " + ownerWords(owner)})
		case no && t.leads():
			owned[s.Topic.Name] = true
			t.board.Set(report.Condition{
				Code: report.TopicOwnedByOther, Severity: report.Error, Subject: sub,
				Message:  fmt.Sprintf("%s is written by %s, so %s is not copied by this one", s.Remote, ownerWords(owner), s.Topic.Name),
				Evidence: map[string]any{"remote_topic": s.Remote, "owner_flow": owner},
				Remedy:   "take the topic out of one of the two flows",
			})
			excluded = append(excluded, report.Excluded{Name: s.Topic.Name, Reason: "owned by " + ownerWords(owner)})
		}
	}
	t.board.ClearWhere(func(c report.Condition) bool {
		return c.Code == report.TopicOwnedByOther && !owned[c.Subject.Topic] && !unsettled(d, c.Subject.Topic)
	})
	return wanted, excluded
}

// ownerWords names the owner of a topic in a sentence.
func ownerWords(owner string) string {
	if owner == OwnerElsewhere {
		return owner
	}
	return "flow " + owner
}

// unsettled tells whether the last look could not tell what becomes of a source topic: what was known of it stays.
func unsettled(d topics.Discovery, topic string) bool {
	return d.Unclear[topic] || d.Undecided[topic] != nil
}

// release gives claims back. A failure leaves them ours, which does no harm but to another flow that wants them.
func (t *Task) release(ctx context.Context, remote []string) {
	for _, name := range remote {
		delete(t.claimed, name)
	}
	if t.cfg.Owners == nil || !t.leads() || len(remote) == 0 {
		return
	}
	c, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := t.cfg.Owners.Release(c, t.targetID, remote); err != nil {
		t.log.Warn("claims of remote topics could not be given back", slog.Any("topics", remote), slog.Any("error", err))
	}
}

// leftClaims are remote topics that an earlier run of the flow mirrored and the lists do not select any more. What the
// last look could not settle is not among them, nor what is selected and could not be claimed: neither was given up.
func (t *Task) leftClaims(d topics.Discovery) []string {
	selected := make(map[string]bool, len(d.Topics))
	for _, s := range d.Topics {
		selected[s.Remote] = true
	}
	var left []string
	t.entriesMu.Lock()
	defer t.entriesMu.Unlock()
	for k, e := range t.entries {
		if !selected[k.RemoteTopic] && !unsettled(d, e.SourceTopic) {
			selected[k.RemoteTopic] = true
			left = append(left, k.RemoteTopic)
		}
	}
	return left
}
