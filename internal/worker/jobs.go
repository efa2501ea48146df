package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/kafka"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
)

const (
	// jobPlaces is how many jobs run at a time.
	jobPlaces = 8
	// jobTTL is when a job whose worker died is given to another one.
	jobTTL = 10 * time.Second
	// jobTimeout bounds a job, so that its result is stored before another worker gets it.
	jobTimeout = 8500 * time.Millisecond
)

// jobs runs the short jobs that the API leaves.
type jobs struct {
	s      *Supervisor
	places chan struct{}
	work   sync.WaitGroup
	life   context.Context //nolint:containedctx // of the jobs, which outlive the loop
	cancel context.CancelCauseFunc
}

func newJobs(s *Supervisor) *jobs {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &jobs{s: s, places: make(chan struct{}, jobPlaces), life: ctx, cancel: cancel}
}

// loop takes jobs until ctx ends.
func (j *jobs) loop(ctx context.Context) {
	var failing failure
	for {
		select {
		case <-ctx.Done():
			return
		case j.places <- struct{}{}:
		}
		job, err := j.claim(ctx)
		failing.note(j.s.log, "claim job", err)
		if job != nil {
			j.work.Go(func() {
				defer func() { <-j.places }()
				j.run(*job)
			})
			continue
		}
		<-j.places
		timer := time.NewTimer(pollEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-j.s.jobNow:
		}
		timer.Stop()
	}
}

func (j *jobs) claim(ctx context.Context) (*flows.Job, error) {
	if ctx.Err() != nil {
		return nil, nil
	}
	// Not cut off by a shutdown: a job whose answer is not awaited would wait for a TTL.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	job, err := j.s.store.ClaimJob(cctx, j.s.id, jobTTL)
	if err != nil {
		j.s.m.storeErrors.WithLabelValues("claim job").Inc()
	}
	return job, err
}

// stop waits for the jobs under way until the given time, then cancels them:
// another worker gets them.
func (j *jobs) stop(by time.Time) {
	ctx, cancel := context.WithDeadline(j.life, by)
	defer cancel()
	awaitGroup(ctx, &j.work)
	j.cancel(ErrShutdown)
	j.work.Wait()
}

func (j *jobs) run(job flows.Job) {
	began := time.Now()
	log := j.s.log.With(slog.String("job_id", job.ID.String()), slog.String("kind", string(job.Kind)))
	ctx, cancel := context.WithTimeout(j.life, jobTimeout)
	defer cancel()
	kind := string(job.Kind)
	var result any
	var outcome string
	err := contained(func() (err error) {
		switch job.Kind {
		case flows.JobCheckService:
			result, outcome, err = j.checkService(ctx, job.Payload)
		case flows.JobForgetPositions:
			result, outcome, err = j.forgetPositions(ctx, job.Payload)
		default:
			kind = "unknown"
			err = fmt.Errorf("job kind %q is not known to this version", job.Kind)
		}
		return err
	})
	j.s.m.jobSeconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
	if err != nil {
		// Not answered: another worker, perhaps of another version, gets it after the TTL.
		j.s.m.jobs.WithLabelValues(kind, "error").Inc()
		log.Error("job failed", slog.Any("error", err))
		return
	}
	if j.life.Err() != nil {
		j.s.m.jobs.WithLabelValues(kind, "abandoned").Inc()
		return // what it found may be the shutdown's doing
	}
	j.s.m.jobs.WithLabelValues(kind, outcome).Inc()
	if err := j.complete(job, result); err != nil {
		log.Warn("job result not stored", slog.Any("error", err))
		return
	}
	log.Debug("job done", slog.String("result", outcome), slog.Duration("took", time.Since(began)))
}

// complete stores a result, again and again until the job is another worker's.
func (j *jobs) complete(job flows.Job, result any) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	ctx, cancel := context.WithTimeout(j.life, jobTTL-jobTimeout+time.Second)
	defer cancel()
	var backoff lifecycle.Backoff
	for {
		err := j.s.store.CompleteJob(ctx, j.s.id, job.ID, raw)
		if err == nil || flows.CodeOf(err) == flows.CodeLeaseLost {
			return err
		}
		j.s.m.storeErrors.WithLabelValues("complete job").Inc()
		if backoff.Wait(ctx) != nil {
			return err
		}
	}
}

// checkService tries a cluster.
func (j *jobs) checkService(ctx context.Context, payload json.RawMessage) (any, string, error) {
	var p flows.CheckServicePayload
	if err := json.Unmarshal(payload, &p); err != nil {
		return nil, "", fmt.Errorf("read payload: %w", err)
	}
	security, err := toKafkaSecurity(j.s.opener, p.Security, p.Sealed)
	if err != nil {
		return flows.CheckServiceResult{ //nolint:nilerr // the error is the job's answer
			Step: "secrets", Code: codeSecretsUnreadable, Message: "The credentials cannot be read by the worker: " + err.Error() + ".",
			Remedy: "Give the workers the private key that is named, or send the credentials again.",
		}, "failed", nil
	}
	info, problem := j.s.check(ctx, kafka.Cluster{BootstrapServers: p.BootstrapServers, Credentials: kafka.NewCredentials(security)})
	result := flows.CheckServiceResult{KafkaClusterID: info.ClusterID, KafkaVersion: info.Version}
	if problem == nil {
		return result, "ok", nil
	}
	result.Step, result.Code, result.Address = string(problem.Step), string(problem.Code), problem.Address
	result.Message, result.Remedy = problem.Message, problem.Remedy
	return result, "failed", nil
}

// forgetPositions removes the positions of a flow that is about to be deleted from the target.
func (j *jobs) forgetPositions(ctx context.Context, payload json.RawMessage) (any, string, error) {
	var p flows.ForgetPayload
	if err := json.Unmarshal(payload, &p); err != nil {
		return nil, "", fmt.Errorf("read payload: %w", err)
	}
	s, err := openBoth(j.s.opener, p.Spec)
	if err != nil {
		return flows.ForgetResult{Message: "the credentials cannot be read by the worker: " + err.Error()}, "failed", nil //nolint:nilerr // the error is the job's answer
	}
	cfg := toEngineConfig(p.Spec, s)
	cfg.Identity.FlowID, cfg.Identity.Tasks, cfg.Identity.Worker = p.Spec.Flow.ID.String(), 1, j.s.id
	redact := kafka.Redactor{cfg.Source.Credentials, cfg.Target.Credentials}
	cfg.Logger = redact.Logger(j.s.log)
	if err := redact.Error(j.s.forget(ctx, cfg)); err != nil {
		j.s.log.Warn("positions not forgotten", slog.String("flow_id", cfg.Identity.FlowID), slog.Any("error", err))
		if problem := cfg.Target.Classify(err); problem != nil {
			return flows.ForgetResult{Message: problem.Message}, "failed", nil //nolint:nilerr // the error is the job's answer
		}
		return flows.ForgetResult{Message: err.Error()}, "failed", nil
	}
	return flows.ForgetResult{}, "ok", nil
}
