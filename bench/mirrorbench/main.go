// Command mirrorbench compares mirrorflow with MirrorMaker 2 on real brokers, case by case.
//
// It owns the cases and how they are measured; the stage is bench/internal/lab, figures and tables bench/internal/results.
// It talks to loopback only and ends everything that it started. See bench/README.md, and start with cases.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/mirrorflow/mirrorflow/bench/internal/results"
)

// cli is the command line.
type cli struct {
	Run    runCommand    `cmd:"" help:"Run cases and write a file of results for each."`
	Quick  quickCommand  `cmd:"" help:"One case, ours against tuned MirrorMaker 2, in less than five minutes; prints the ratios and keeps nothing."`
	Report reportCommand `cmd:"" help:"Make the table of results from their files."`
	List   listCommand   `cmd:"" help:"List the cases."`
}

// options are common to what measures.
type options struct {
	Engines string  `env:"BENCH_ENGINES" help:"Contestants, separated by commas or spaces; default: those of the case."`
	Work    string  `env:"BENCH_WORK" help:"Folder for brokers' data and logs; default: mirrorflow/bench in the user's cache folder."`
	Bin     string  `default:"bin" help:"Folder of mirrorflow-api, mirrorflow-worker and mirrorctl."`
	Scale   float64 `env:"BENCH_SCALE" default:"1" help:"Share of the full size of data and times; below 1 for trying out."`
	Rounds  int     `env:"BENCH_ROUNDS" default:"2" help:"How often each contestant runs in a case."`
	Keep    bool    `help:"Leave the work folder, with all logs."`
}

type runCommand struct {
	options
	Cases   []string `arg:"" optional:"" help:"Cases or groups; default: BENCH_CASES, else the six of make bench."`
	Results string   `default:"bench/results" help:"Folder of results."`
	Force   bool     `env:"FORCE" help:"Run cases again that have a result."`
}

type quickCommand struct{ options }

type reportCommand struct {
	Results string `default:"bench/results" help:"Folder of results."`
}

type listCommand struct{}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var c cli
	k := kong.Parse(&c, kong.Name("mirrorbench"), kong.UsageOnError(), kong.BindTo(ctx, (*context.Context)(nil)))
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "mirrorbench:", err)
		stop()
		os.Exit(1)
	}
}

// words splits a list that is separated by commas or spaces.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// Run runs the cases that have no result yet.
func (c *runCommand) Run(ctx context.Context) error {
	names := c.Cases
	if len(names) == 0 {
		names = words(os.Getenv("BENCH_CASES"))
	}
	if len(names) == 0 {
		names = []string{"bench"}
	}
	cases, err := selectCases(names)
	if err != nil {
		return err
	}
	var todo []benchCase
	for _, one := range cases {
		if _, err := os.Stat(results.File(c.Results, one.name)); err == nil && !c.Force {
			fmt.Printf("== %s has a result already (FORCE=1 runs it again)\n", one.name)
			continue
		}
		todo = append(todo, one)
	}
	if len(todo) == 0 {
		return nil
	}
	b, err := open(ctx, c.options)
	if err != nil {
		return err
	}
	err = b.runAll(ctx, todo, func(r results.Result) error {
		if err := results.Save(c.Results, r); err != nil {
			return err
		}
		return (&reportCommand{Results: c.Results}).write()
	})
	return errors.Join(err, b.close(ctx))
}

// Run runs the quick case.
func (c *quickCommand) Run(ctx context.Context) error {
	if c.Engines == "" {
		c.Engines = "mm2-tuned,ours"
	}
	c.Scale *= 0.5
	c.Rounds = 1
	cases, err := selectCases([]string{"1k-lz4-large"})
	if err != nil {
		return err
	}
	b, err := open(ctx, c.options)
	if err != nil {
		return err
	}
	err = b.runAll(ctx, cases, func(results.Result) error { return nil })
	return errors.Join(err, b.close(ctx))
}

// Run writes README.md beside the results.
func (c *reportCommand) Run() error { return c.write() }

func (c *reportCommand) write() error {
	all, err := results.Load(c.Results)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.Results, "README.md"), []byte(results.Report(all, caseNames())), 0o644)
}

// Run prints the cases.
func (c *listCommand) Run() error {
	for _, one := range allCases() {
		fmt.Printf("%-18s %s\n", one.name, one.title)
	}
	for _, g := range groups {
		fmt.Printf("%-18s %s\n", g.name, strings.Join(g.cases, " "))
	}
	return nil
}

// defaultWork is where data and logs go.
func defaultWork() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder, set BENCH_WORK: %w", err)
	}
	return filepath.Join(cache, "mirrorflow", "bench"), nil
}
