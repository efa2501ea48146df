package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Variable is one setting.
type Variable struct {
	Name    string // with Prefix
	Default string // "" when there is none
	field   string // of the struct
}

// Variables lists the settings of all processes, sorted by name.
func Variables() []Variable {
	byName := map[string]Variable{}
	for _, v := range slices.Concat(variablesOf(API{}), variablesOf(Worker{}), variablesOf(Ctl{})) {
		byName[v.Name] = v
	}
	out := make([]Variable, 0, len(byName))
	for _, v := range byName {
		out = append(out, v)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func variablesOf(config any) []Variable {
	var out []Variable
	for _, f := range reflect.VisibleFields(reflect.TypeOf(config)) {
		if name := f.Tag.Get("env"); name != "" {
			out = append(out, Variable{Name: Prefix + name, Default: f.Tag.Get("envDefault"), field: f.Name})
		}
	}
	return out
}

// foreign are variables of the same prefix that belong to scripts and tests; what ends with an underscore stands for all
// that begin so.
var foreign = []string{Prefix + "TEST_", Prefix + "DATA", Prefix + "CACHE", Prefix + "POSTGRES_"}

// unknownVariables answers a warning for each variable that begins with Prefix
// and that no process knows. Variables of another process are known: one
// environment may serve all of them.
func unknownVariables(environ []string) []string {
	known := Variables()
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, Prefix) ||
			slices.ContainsFunc(known, func(v Variable) bool { return v.Name == name }) ||
			slices.ContainsFunc(foreign, func(p string) bool { return name == p || strings.HasSuffix(p, "_") && strings.HasPrefix(name, p) }) {
			continue
		}
		w := name + " is not a setting and has no effect"
		if near := nearest(name, known); near != "" {
			w += "; did you mean " + near + "?"
		}
		out = append(out, w)
	}
	sort.Strings(out)
	return out
}

// nearest answers the known name within three edits, or "".
func nearest(name string, known []Variable) string {
	best, bestDistance := "", 4
	for _, v := range known {
		if d := distance(name, v.Name); d < bestDistance {
			best, bestDistance = v.Name, d
		}
	}
	return best
}

// distance counts the insertions, deletions and replacements between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			d := diagonal
			if a[i-1] != b[j-1] {
				d = 1 + min(diagonal, row[j], row[j-1])
			}
			diagonal, row[j] = row[j], d
		}
	}
	return row[len(b)]
}

// parser collects faults so that one start names all of them.
type parser struct{ faults []string }

func (p *parser) fault(name, text string) { p.faults = append(p.faults, Prefix+name+" "+text) }

func (p *parser) err() error {
	if len(p.faults) == 0 {
		return nil
	}
	sort.Strings(p.faults)
	return errors.New(strings.Join(p.faults, "\n"))
}

// parse fills a struct from environ. Values are trimmed, and empty ones count
// as unset, since compose files and shells cannot unset a variable.
func parse[T any](environ []string, into *T) *parser {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && strings.TrimSpace(value) != "" {
			vars[name] = strings.TrimSpace(value)
		}
	}
	p := &parser{}
	err := env.ParseWithOptions(into, env.Options{Environment: vars, Prefix: Prefix})
	var all env.AggregateError
	switch {
	case err == nil:
	case errors.As(err, &all):
		for _, e := range all.Errors {
			var pe env.ParseError
			if !errors.As(e, &pe) {
				p.faults = append(p.faults, e.Error())
				continue
			}
			for _, v := range variablesOf(*into) {
				if v.field == pe.Name {
					p.fault(strings.TrimPrefix(v.Name, Prefix), fmt.Sprintf("is %q, which cannot be read: %s", vars[v.Name], expected(pe.Type)))
				}
			}
		}
	default:
		p.faults = append(p.faults, err.Error())
	}
	return p
}

// expected says in words what a setting of type t looks like. Settings that
// may hold a secret are strings, which always parse.
func expected(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "want a duration such as 10s or 2m30s"
	default:
		return "want DEBUG, INFO, WARN or ERROR"
	}
}

func (p *parser) process(c Process) {
	p.databaseURL("DATABASE_URL", c.DatabaseURL)
	p.within("DRAIN_TIMEOUT", c.DrainTimeout, 0, MaxDrainTimeout)
}

func (p *parser) within(name string, d, least, most time.Duration) {
	if d < least || d > most {
		p.fault(name, fmt.Sprintf("is %v, must be between %v and %v", d, least, most))
	}
}

// databaseURL checks the form only and never quotes the value: it may hold a password.
func (p *parser) databaseURL(name, v string) {
	switch {
	case v == "":
		p.fault(name, "is not set, want for example postgres://user:password@host:5432/mirrorflow")
	case strings.HasPrefix(v, "postgres://"), strings.HasPrefix(v, "postgresql://"):
		if _, err := url.Parse(v); err != nil {
			p.fault(name, "is not a valid URL (its value is not shown, it may hold a password); special characters in the password must be percent-encoded")
		}
	case strings.Contains(v, "="): // keyword/value form
	default:
		p.fault(name, "must begin with postgres:// or be a keyword/value string (its value is not shown, it may hold a password)")
	}
}

// address checks a listen address: host:port, host an IP, a name or empty.
func (p *parser) address(name, v string, required bool) {
	if v == "" {
		if required {
			p.fault(name, "is empty, want host:port")
		}
		return
	}
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		p.fault(name, fmt.Sprintf("is %q, want host:port such as 127.0.0.1:8080", v))
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		p.fault(name, fmt.Sprintf("is %q, the port must be a number from 0 to 65535", v))
	}
}

// isLoopback tells whether a listen address is reachable from this machine
// only. Names other than localhost are not resolved: they may change meaning.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
