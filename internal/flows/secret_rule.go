package flows

import (
	"maps"
	"slices"
	"strings"
)

// refuseMovedSecrets demands the secrets anew that a change of s would keep and send elsewhere or otherwise than
// before. Secrets are write-only: who may change a service but does not know its secrets must not learn them by
// having them sent to a place of his own, in the clear, or under another mechanism. That holds for the check of the
// changed connection as well, so this comes before it.
//
// Fewer or reordered bootstrap servers are no new place. Who we are there (user name, client id, scope, client
// certificate) says nothing about where: the secrets stay with the cluster and the token endpoint they were given for.
func refuseMovedSecrets(old Service, in ServiceInput) fieldErrors {
	moved := movedMembers(old, in)
	if len(moved) == 0 {
		return nil
	}
	var f fieldErrors
	for _, field := range slices.Sorted(maps.Keys(old.Sealed)) {
		if _, said := in.Secrets[field]; !said {
			f.addf(secretPointer(field), "must be sent again, since %s changes: a stored secret goes only to where, and only as, it was meant to",
				strings.Join(moved, ", "))
		}
	}
	return f
}

// movedMembers names the members that decide where and how secrets travel and that differ.
func movedMembers(old Service, in ServiceInput) []string {
	var moved []string
	if slices.ContainsFunc(in.BootstrapServers, func(s string) bool { return !slices.Contains(old.BootstrapServers, s) }) {
		moved = append(moved, "bootstrapServers")
	}
	note := func(member, before, after string) {
		if before != after {
			moved = append(moved, member)
		}
	}
	note("security.protocol", old.Security.Protocol, in.Security.Protocol)
	t, u := orZero(old.Security.TLS), orZero(in.Security.TLS)
	note("security.tls.ca", t.CA, u.CA)
	note("security.tls.serverName", t.ServerName, u.ServerName)
	a, b := orZero(old.Security.SASL), orZero(in.Security.SASL)
	note("security.sasl.mechanism", a.Mechanism, b.Mechanism)
	note("security.sasl.tokenEndpoint", a.TokenEndpoint, b.TokenEndpoint)
	return moved
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
