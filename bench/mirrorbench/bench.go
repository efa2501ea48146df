package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mirrorflow/mirrorflow/bench/internal/lab"
	"github.com/mirrorflow/mirrorflow/bench/internal/results"
	"github.com/mirrorflow/mirrorflow/bench/internal/stats"
)

// bench is a stage with the options of this invocation.
type bench struct {
	options
	lab     *lab.Lab
	work    string
	machine results.Machine
	commit  string
}

// open sets the stage.
func open(ctx context.Context, o options) (*bench, error) {
	if o.Scale <= 0 || o.Rounds < 1 {
		return nil, errors.New("scale and rounds must be positive")
	}
	b := &bench{options: o, work: o.Work, commit: commit(ctx)}
	var err error
	if b.work == "" {
		if b.work, err = defaultWork(); err != nil {
			return nil, err
		}
	}
	if b.machine, err = machine(ctx); err != nil {
		return nil, fmt.Errorf("look at the machine: %w", err)
	}
	b.say("== Starting Kafka %s (source), Kafka %s (target), Postgres and the API; data and logs in %s", b.machine.Source, b.machine.Target, b.work)
	b.lab, err = lab.Open(ctx, lab.Config{Dir: b.work, Bin: o.Bin, Keep: o.Keep})
	return b, err
}

// close ends the stage, also when ctx has ended.
func (b *bench) close(ctx context.Context) error { return b.lab.Close(context.WithoutCancel(ctx)) }

func (b *bench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// runAll runs the cases one after the other and hands each result to done. A case that cannot be run does not keep the
// others from running.
func (b *bench) runAll(ctx context.Context, cases []benchCase, done func(results.Result) error) error {
	var errs []error
	for i, c := range cases {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		b.say("== %s (%d of %d): %s", c.name, i+1, len(cases), c.title)
		begin := time.Now()
		r := results.Result{
			Case: c.name, Title: c.title, Date: begin.UTC().Truncate(time.Second), Commit: b.commit, Machine: b.machine,
			Scale: b.Scale, Params: map[string]string{},
		}
		err := c.run(ctx, b, &r)
		if err == nil {
			err = done(r)
		}
		if err != nil {
			b.say("   %s failed: %v", c.name, err)
			errs = append(errs, fmt.Errorf("case %s: %w", c.name, err))
			if ctx.Err() == nil {
				errs = append(errs, b.lab.DeleteFlows(ctx), b.clean(ctx))
			}
			continue
		}
		b.say("   %s took %s", c.name, time.Since(begin).Round(time.Second))
		fmt.Print(results.Table(r))
	}
	return errors.Join(errs...)
}

// contestants are those asked for, or the case's own.
func (b *bench) contestants(own ...string) ([]string, error) {
	asked := words(b.Engines)
	if len(asked) == 0 {
		return own, nil
	}
	var out []string
	for _, name := range asked {
		if _, err := b.lab.Engine(name); err != nil {
			return nil, err
		}
		for _, o := range own {
			if o == name {
				out = append(out, name)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("none of the contestants %v takes part", asked)
	}
	return out, nil
}

// rounds calls one for each run, in the order A B B A.
func (b *bench) rounds(r *results.Result, engines []string, one func(engine string) (results.Run, error)) error {
	for i, engine := range stats.Order(engines, b.Rounds) {
		run, err := one(engine)
		if err != nil {
			return fmt.Errorf("%s: %w", engine, err)
		}
		run.Round = i/len(engines) + 1
		r.Runs = append(r.Runs, run)
		b.say("   %s", results.Line(run))
	}
	return nil
}

// room fails when the work folder's disk has less than need bytes.
func (b *bench) room(need int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(b.work, &fs); err != nil {
		return fmt.Errorf("look for free disk space at %s: %w", filepath.Dir(b.work), err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < need {
		return fmt.Errorf("needs %d MB of disk, there are %d", need>>20, free>>20)
	}
	return nil
}
