package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mirrorflow/mirrorflow/internal/dev/freeport"
	"github.com/mirrorflow/mirrorflow/internal/dev/kafkaproc"
	"github.com/mirrorflow/mirrorflow/internal/dev/pgproc"
)

// Config says where things are.
type Config struct {
	// Dir takes data and logs; what is in it already is removed, and all of it at Close unless Keep.
	Dir  string
	Keep bool
	// Bin holds mirrorflow-api, mirrorflow-worker and mirrorctl.
	Bin string
}

// Lab is the stage. Its methods must not be called at the same time as each other.
type Lab struct {
	Source *Broker // Kafka 3.9
	Target *Broker // Kafka 4.3
	// second is another pair, made on demand.
	second []*Broker

	cfg      Config
	dir, bin string
	postgres *pgproc.Server
	api      *Mirror
	base     string
	database string
	runs     atomic.Int64
	flows    map[string]struct{} // that are there
}

// marker is a file in every folder that a lab made, so that nothing else is ever removed.
const marker = ".mirrorbench"

// Open starts brokers, Postgres and the API. On an error nothing is left running.
func Open(ctx context.Context, cfg Config) (*Lab, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := freshDir(dir); err != nil {
		return nil, err
	}
	l := &Lab{cfg: cfg, dir: dir, flows: map[string]struct{}{}}
	if l.bin, err = filepath.Abs(cfg.Bin); err != nil {
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		// The caller's ctx may be what ended it.
		return nil, errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	}
	return l, nil
}

// freshDir empties dir, which must be new, empty, or a lab's.
func freshDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look into the work folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); len(entries) > 0 && err != nil {
		return fmt.Errorf("%s is not empty and was not made by this program; name another work folder", dir)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("empty the work folder: %w", err)
		}
	}
	// Postgres may run as another user, who must be able to walk here.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the work folder: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, marker), nil, 0o600)
}

func (l *Lab) start(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		l.Source, err = startBroker(groupCtx, kafkaproc.V39, filepath.Join(l.dir, "source"), 1024)
		return err
	})
	group.Go(func() (err error) {
		l.Target, err = startBroker(groupCtx, kafkaproc.V43, filepath.Join(l.dir, "target"), 1024)
		return err
	})
	group.Go(func() (err error) {
		l.postgres, err = pgproc.Start(groupCtx, pgproc.Config{Dir: filepath.Join(l.dir, "postgres")})
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	l.database = l.postgres.DSN("postgres")
	for _, args := range [][]string{
		{"migrate"},
		{"keys", "new", "--public", filepath.Join(l.dir, "public-keys"), "--private", filepath.Join(l.dir, "private-keys")},
	} {
		cmd := exec.CommandContext(ctx, filepath.Join(l.bin, "mirrorctl"), args...)
		cmd.Env = append(cleanEnv(), "MIRRORFLOW_DATABASE_URL="+l.database)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mirrorctl %s: %w: %s", args[0], err, bytes.TrimSpace(out))
		}
	}
	port, err := freeport.One()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	l.base = "http://" + address
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(l.bin, "mirrorflow-api"))
	cmd.Env = append(cleanEnv(), "MIRRORFLOW_DATABASE_URL="+l.database, "MIRRORFLOW_LISTEN="+address, "MIRRORFLOW_AUTH=none",
		"MIRRORFLOW_SECRET_PUBLIC_KEYS_FILE="+filepath.Join(l.dir, "public-keys"))
	if l.api, err = startMirror(cmd, filepath.Join(l.dir, "api.log")); err != nil {
		return err
	}
	return l.waitAPI(ctx)
}

// waitAPI waits until the API answers.
func (l *Lab) waitAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := l.call(ctx, http.MethodGet, "/readyz", nil, nil)
		if err == nil {
			return nil
		}
		select {
		case <-l.api.Done():
			return fmt.Errorf("the API ended; end of its log:\n%s", l.api.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("the API is not ready: %w; end of its log:\n%s", err, l.api.LogTail(20))
		case <-tick.C:
		}
	}
}

// Close ends everything and removes the work folder's content.
func (l *Lab) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var errs []error
	if l.api != nil {
		errs = append(errs, l.api.Stop(ctx))
	}
	for _, b := range append([]*Broker{l.Source, l.Target}, l.second...) {
		if b != nil {
			errs = append(errs, b.close(ctx))
		}
	}
	if l.postgres != nil {
		errs = append(errs, l.postgres.Stop(ctx))
	}
	if !l.cfg.Keep {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// SecondPair returns the brokers of another pair of clusters, Kafka 3.9 and 4.3, which are started when they are asked for
// first.
func (l *Lab) SecondPair(ctx context.Context) (source, target *Broker, err error) {
	for i, version := range []kafkaproc.Version{kafkaproc.V39, kafkaproc.V43} {
		if len(l.second) > i {
			continue
		}
		b, err := startBroker(ctx, version, filepath.Join(l.dir, fmt.Sprintf("second-%s", version)), 512)
		if err != nil {
			return nil, nil, err
		}
		l.second = append(l.second, b)
	}
	return l.second[0], l.second[1], nil
}

// next numbers runs and pairs; it makes their aliases unique.
func (l *Lab) next() int { return int(l.runs.Add(1)) }

// cleanEnv is the environment without what changes how our processes or Go's runtime behave.
func cleanEnv() []string {
	var out []string
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "MIRRORFLOW_") || strings.HasPrefix(e, "GOGC=") || strings.HasPrefix(e, "GOMEMLIMIT=") ||
			strings.HasPrefix(e, "GODEBUG=") || strings.HasPrefix(e, "GOMAXPROCS=") {
			continue
		}
		out = append(out, e)
	}
	return out
}

type object map[string]any

// call sends a request to the API and decodes a successful answer into out, unless that is nil.
func (l *Lab) call(ctx context.Context, method, path string, body, out any) error {
	var r io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, l.base+path, r)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s answers %d: %s", method, path, response.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("answer of %s %s: %w", method, path, err)
	}
	return nil
}
