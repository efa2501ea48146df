package data

import (
	"context"
	"fmt"

	"github.com/alecthomas/kong"
)

type commands struct {
	Produce Produce `cmd:"" help:"Produce records to a topic."`
	Commit  Commit  `cmd:"" help:"Commit offsets for a group."`
	Group   Group   `cmd:"" help:"Print a group's offsets on a topic."`
	Topics  Topics  `cmd:"" help:"List topics."`
	Count   Count   `cmd:"" help:"Count a topic's offsets."`
	Wait    Wait    `cmd:"" help:"Wait until a topic holds a number of records."`
	Compare Compare `cmd:"" help:"Compare a topic with its copy, record by record."`
}

// Names are the commands that Run knows.
var Names = []string{"produce", "commit", "group", "topics", "count", "wait", "compare"}

// Run parses and runs one of Names with its flags.
func Run(ctx context.Context, args []string) error {
	p, err := kong.New(&commands{}, kong.Name("mirrorflow-dev"), kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		return fmt.Errorf("commands of mirrorflow-dev: %w", err)
	}
	c, err := p.Parse(args)
	if err != nil {
		return err
	}
	return c.Run()
}
