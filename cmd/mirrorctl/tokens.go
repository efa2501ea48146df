package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/store"
)

// projectName is what a project may be called: it stands in URLs.
var projectName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkProject(name string) error {
	if !projectName.MatchString(name) {
		return fmt.Errorf("project name %q: must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit", name)
	}
	return nil
}

type projectCreateCmd struct {
	Name string `arg:"" help:"Name of the project; OVHcloud-shaped routes carry it as {serviceName}."`
}

// Run implements the command.
func (c projectCreateCmd) Run(a *app) error {
	if err := checkProject(c.Name); err != nil {
		return err
	}
	return a.withStore(func(db *store.Store) error {
		p, err := db.CreateProject(a.ctx, c.Name)
		if err != nil {
			return err
		}
		return a.print("%s\n", p.ID)
	})
}

type projectListCmd struct{}

// Run implements the command.
func (projectListCmd) Run(a *app) error {
	return a.withStore(func(db *store.Store) error {
		projects, err := db.ListProjects(a.ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tID\tCREATED")
		for _, p := range projects {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.ID, p.CreatedAt.UTC().Format(time.RFC3339))
		}
		return w.Flush()
	})
}

type tokenCreateCmd struct {
	Project string `default:"default" help:"Project that the token belongs to."`
	Name    string `required:"" help:"What the token is for, to find it again."`
}

// Run implements the command.
func (c tokenCreateCmd) Run(a *app) error {
	if err := checkProject(c.Project); err != nil {
		return err
	}
	if strings.TrimSpace(c.Name) == "" {
		return errors.New("--name is empty: say what the token is for, to find it again")
	}
	return a.withStore(func(db *store.Store) error {
		p, err := db.EnsureProject(a.ctx, c.Project)
		if err != nil {
			return err
		}
		_, text, err := db.CreateToken(a.ctx, p.ID, c.Name)
		if err != nil {
			return err
		}
		return a.print("%s\n", text)
	})
}

type tokenListCmd struct {
	Project string `default:"default" help:"Project whose tokens to list."`
}

// Run implements the command.
func (c tokenListCmd) Run(a *app) error {
	return a.withStore(func(db *store.Store) error {
		p, err := db.ProjectByName(a.ctx, c.Project)
		if err != nil {
			return err
		}
		tokens, err := db.ListTokens(a.ctx, p.ID)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tID\tCREATED")
		for _, t := range tokens {
			fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, t.ID, t.CreatedAt.UTC().Format(time.RFC3339))
		}
		return w.Flush()
	})
}

type tokenDeleteCmd struct {
	Project string    `default:"default" help:"Project that the token belongs to."`
	ID      uuid.UUID `required:"" help:"The token's id, as 'token list' shows it."`
}

// Run implements the command.
func (c tokenDeleteCmd) Run(a *app) error {
	return a.withStore(func(db *store.Store) error {
		p, err := db.ProjectByName(a.ctx, c.Project)
		if err != nil {
			return err
		}
		return db.DeleteToken(a.ctx, p.ID, c.ID)
	})
}

type statusCmd struct {
	Project string `help:"Show this project only."`
}

// Run implements the command.
func (c statusCmd) Run(a *app) error {
	return a.withStore(func(db *store.Store) error {
		projects, err := db.ListProjects(a.ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "PROJECT\tFLOW\tSTATE\tSINCE\tRECORD LAG\tWORKERS\tCONDITIONS")
		found := false
		for _, p := range projects {
			if c.Project != "" && p.Name != c.Project {
				continue
			}
			found = true
			if err := c.flows(a, db, w, p); err != nil {
				return err
			}
		}
		if c.Project != "" && !found {
			return fmt.Errorf("there is no project %q", c.Project)
		}
		return w.Flush()
	})
}

func (statusCmd) flows(a *app, db *store.Store, w *tabwriter.Writer, p flows.Project) error {
	const page = 500
	for after := uuid.Nil; ; {
		list, err := db.ListFlows(a.ctx, p.ID, flows.FlowFilter{}, after, page)
		if err != nil {
			return err
		}
		for _, f := range list {
			after = f.ID
			tasks, err := db.GetFlowTasks(a.ctx, p.ID, f.ID)
			if flows.CodeOf(err) == flows.CodeNotFound {
				continue // deleted meanwhile
			}
			if err != nil {
				return err
			}
			st := flows.MergeStatus(tasks)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, f.ID, st.State, st.Since.UTC().Format(time.RFC3339),
				recordLag(st.RecordLag), workers(st.Tasks), codes(st.Conditions))
		}
		if len(list) < page {
			return nil
		}
	}
}

// recordLag prints a lag, "?" for one that is not known.
func recordLag(lag *int64) string {
	if lag == nil {
		return "?"
	}
	return strconv.FormatInt(*lag, 10)
}

func workers(tasks []flows.TaskAssignment) string {
	seen := map[string]bool{}
	out := ""
	for _, t := range tasks {
		if !seen[t.Worker] {
			seen[t.Worker] = true
			out = join(out, t.Worker)
		}
	}
	return orDash(out)
}

func codes(conditions []flows.Condition) string {
	seen := map[string]bool{}
	out := ""
	for _, c := range conditions {
		if !seen[c.Code] {
			seen[c.Code] = true
			out = join(out, c.Code)
		}
	}
	return orDash(out)
}

func join(list, item string) string {
	if list == "" {
		return item
	}
	return list + "," + item
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
