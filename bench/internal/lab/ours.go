package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
)

// ours is a mirrorflow worker. The API and Postgres run beside it and are not measured.
type ours struct {
	lab      *Lab
	name     string
	dataPath string
}

func (e *ours) Name() string { return e.name }

func (e *ours) Prepare(ctx context.Context, task Task) (Prepared, error) {
	p, err := e.lab.Worker(e.name)
	if err != nil {
		return nil, err
	}
	pair, err := e.lab.Pair(ctx, task.Source, task.Target)
	if err != nil {
		return nil, err
	}
	p.pair = pair
	return p, p.AddFlow(ctx, pair, task)
}

// PreparedOurs is a worker that may be started, and its flows.
type PreparedOurs struct {
	lab      *Lab
	name     string
	dataPath string
	number   int
	starts   int
	pair     Pair
	flows    []string // their ids
}

// Worker returns a worker of the contestant ours or ours-records, without flows.
func (l *Lab) Worker(engine string) (*PreparedOurs, error) {
	e, err := l.Engine(engine)
	if err != nil {
		return nil, err
	}
	o, ok := e.(*ours)
	if !ok {
		return nil, fmt.Errorf("%s is no worker of mirrorflow", engine)
	}
	return &PreparedOurs{lab: l, name: o.name, dataPath: o.dataPath, number: l.next()}, nil
}

// Pair is the pair of clusters that the flow connects.
func (p *PreparedOurs) Pair() Pair { return p.pair }

// Start starts the worker.
func (p *PreparedOurs) Start(context.Context) (*Mirror, error) {
	p.starts++
	return p.lab.startWorker(fmt.Sprintf("run-%03d-%s", p.number, p.name), p.dataPath)
}

// Remote is the name that a topic has on the target.
func (p *PreparedOurs) Remote(topic string) string { return p.pair.Remote(topic) }

// AddFlow makes another flow, which Close deletes.
func (p *PreparedOurs) AddFlow(ctx context.Context, pair Pair, task Task) error {
	id, err := pair.Flow(ctx, task)
	if err == nil {
		p.flows = append(p.flows, id)
	}
	return err
}

// Close deletes the flows.
func (p *PreparedOurs) Close(ctx context.Context) error {
	var errs []error
	for _, id := range p.flows {
		errs = append(errs, p.lab.deleteFlow(ctx, id))
	}
	p.flows = nil
	return errors.Join(errs...)
}

func (l *Lab) deleteFlow(ctx context.Context, id string) error {
	if err := l.call(ctx, http.MethodDelete, "/replications/"+id, nil, nil); err != nil {
		return err
	}
	delete(l.flows, id)
	return nil
}

// DeleteFlows deletes what flows a failed run left behind. No worker may be running.
func (l *Lab) DeleteFlows(ctx context.Context) error {
	var errs []error
	for id := range maps.Clone(l.flows) {
		errs = append(errs, l.deleteFlow(ctx, id))
	}
	return errors.Join(errs...)
}

func (l *Lab) startWorker(name, dataPath string) (*Mirror, error) {
	cmd := exec.CommandContext(context.Background(), filepath.Join(l.bin, "mirrorflow-worker"))
	cmd.Env = append(cleanEnv(), "MIRRORFLOW_DATABASE_URL="+l.database, "MIRRORFLOW_WORKER_LISTEN=127.0.0.1:0",
		"MIRRORFLOW_SECRET_PRIVATE_KEYS_FILE="+filepath.Join(l.dir, "private-keys"), "MIRRORFLOW_DATA_PATH="+dataPath)
	return startMirror(cmd, filepath.Join(l.dir, name+".log"))
}

// Pair is two clusters bound to a MirrorMaker service, under an alias that no run had before.
type Pair struct {
	lab            *Lab
	source, target string // integrations
	alias          string
}

// Remote is the name that a topic has on the target.
func (p Pair) Remote(topic string) string { return p.alias + "." + topic }

// Pair registers the clusters, which a worker that lives for that long checks.
func (l *Lab) Pair(ctx context.Context, source, target string) (pair Pair, err error) {
	n := l.next()
	helper, err := l.startWorker(fmt.Sprintf("register-%03d", n), "batches")
	if err != nil {
		return Pair{}, err
	}
	defer func() { err = errors.Join(err, helper.Stop(ctx)) }()
	pair = Pair{lab: l, alias: fmt.Sprintf("s%d", n)}
	var made struct{ ID string }
	post := func(path string, body object) (string, error) {
		err := l.call(ctx, http.MethodPost, path, body, &made)
		return made.ID, err
	}
	service := func(alias, bootstrap string) (string, error) {
		return post("/services", object{
			"engine": "kafka", "description": alias, "alias": alias, "bootstrapServers": []string{bootstrap},
			"security": object{"protocol": "PLAINTEXT"},
		})
	}
	from, err := service(pair.alias, source)
	if err != nil {
		return Pair{}, err
	}
	to, err := service(fmt.Sprintf("t%d", n), target)
	if err != nil {
		return Pair{}, err
	}
	mm, err := post("/services", object{"engine": "kafkaMirrorMaker", "description": pair.alias})
	if err != nil {
		return Pair{}, err
	}
	for id, into := range map[string]*string{from: &pair.source, to: &pair.target} {
		if *into, err = post("/integrations", object{"type": "kafkaMirrorMaker", "sourceServiceId": id, "destinationServiceId": mm}); err != nil {
			return Pair{}, err
		}
	}
	return pair, nil
}

// Flow creates an enabled flow of the task's topics at the defaults, with consumer groups' offsets, and returns its id.
func (p Pair) Flow(ctx context.Context, task Task) (string, error) {
	var made struct{ ID string }
	err := p.lab.call(ctx, http.MethodPost, "/replications", object{
		"sourceIntegration": p.source, "targetIntegration": p.target, "topics": task.patterns(), "syncGroupOffsets": true, "enabled": true,
	}, &made)
	if err != nil {
		return "", err
	}
	p.lab.flows[made.ID] = struct{}{}
	return made.ID, nil
}
