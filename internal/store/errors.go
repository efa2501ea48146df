package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/mirrorflow/mirrorflow/internal/flows"
)

// meaning is what a violated constraint says to a user.
type meaning struct {
	code    flows.Code
	pointer string
	message string
}

// constraints has every named constraint of the schema. Most cannot be violated by a request, since the
// rules look first and under the project's lock; should one be violated all the same, it is a fault of ours.
var constraints = map[string]meaning{
	"projects_pkey":       {code: flows.CodeInternal},
	"projects_name_key":   {flows.CodeConflict, "/name", "there is a project with this name already"},
	"projects_name_check": {flows.CodeInvalid, "/name", "must not be empty"},

	"tokens_pkey":         {code: flows.CodeInternal},
	"tokens_project_fkey": {flows.CodeNotFound, "", "there is no such project"},
	"tokens_hash_check":   {code: flows.CodeInternal},
	"tokens_hash_key":     {flows.CodeConflict, "", "this token exists already"},

	"services_pkey":         {code: flows.CodeInternal},
	"services_project_fkey": {flows.CodeNotFound, "", "there is no such project"},
	"services_engine_check": {code: flows.CodeInternal},
	"services_status_check": {code: flows.CodeInternal},
	"services_alias_check":  {code: flows.CodeInternal},
	"services_alias_key":    {flows.CodeConflict, "/alias", "another service of this project has this alias"},

	"integrations_pkey":             {code: flows.CodeInternal},
	"integrations_project_fkey":     {flows.CodeNotFound, "", "there is no such project"},
	"integrations_source_fkey":      {flows.CodeConflict, "", "an integration refers to this service"},
	"integrations_destination_fkey": {flows.CodeConflict, "", "an integration refers to this service"},
	"integrations_status_check":     {code: flows.CodeInternal},
	"integrations_ends_key":         {flows.CodeConflict, "", "an integration binds these two services already"},

	"flows_pkey":                       {code: flows.CodeInternal},
	"flows_project_fkey":               {flows.CodeNotFound, "", "there is no such project"},
	"flows_mirror_maker_fkey":          {flows.CodeConflict, "", "a flow refers to this service"},
	"flows_source_integration_fkey":    {flows.CodeConflict, "", "a flow refers to this integration"},
	"flows_target_integration_fkey":    {flows.CodeConflict, "", "a flow refers to this integration"},
	"flows_source_service_fkey":        {flows.CodeConflict, "", "a flow refers to this service"},
	"flows_target_service_fkey":        {flows.CodeConflict, "", "a flow refers to this service"},
	"flows_tasks_max_check":            {code: flows.CodeInternal},
	"flows_max_bytes_per_second_check": {flows.CodeInvalid, "/maxBytesPerSecond", "must be null (no limit) or 1024 at least"},
	"flows_ends_check":                 {flows.CodeInvalid, "/targetIntegration", "source and target must differ"},

	"workers_pkey":     {code: flows.CodeInternal},
	"workers_id_check": {code: flows.CodeInternal},

	"tasks_pkey":       {code: flows.CodeInternal},
	"tasks_flow_fkey":  {flows.CodeNotFound, "", "the flow does not exist any more"},
	"tasks_task_check": {code: flows.CodeInternal},

	"jobs_pkey":         {code: flows.CodeInternal},
	"jobs_kind_check":   {code: flows.CodeInternal},
	"jobs_service_fkey": {flows.CodeNotFound, "", "the service does not exist any more"},
	"jobs_bound_check":  {code: flows.CodeInternal},

	"events_pkey":      {code: flows.CodeInternal},
	"events_flow_fkey": {flows.CodeNotFound, "", "the flow does not exist any more"},

	"topic_owners_pkey":      {code: flows.CodeInternal},
	"topic_owners_flow_fkey": {flows.CodeNotFound, "", "the flow does not exist any more"},
}

// translate is the one place where database errors become the domain's. An *flows.Error passes unchanged.
func translate(op string, err error) error {
	if err == nil {
		return nil
	}
	var domain *flows.Error
	if errors.As(err, &domain) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return &flows.Error{Code: flows.CodeNotFound, Message: "it does not exist", Op: op, Err: err}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return translatePg(op, pg, err)
	}
	var netErr net.Error
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || errors.As(err, &netErr) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, puddle.ErrClosedPool) || pgconn.SafeToRetry(err) {
		return unavailable(op, err)
	}
	return internal(op, err)
}

func translatePg(op string, pg *pgconn.PgError, err error) error {
	switch {
	case strings.HasPrefix(pg.Code, "23"): // integrity
		m, ok := constraints[pg.ConstraintName]
		if !ok || m.code == flows.CodeInternal {
			return internal(op, err)
		}
		e := &flows.Error{Code: m.code, Message: m.message, Op: op, Err: err}
		if m.pointer != "" {
			e.Fields = []flows.FieldError{{Pointer: m.pointer, Message: m.message}}
		}
		return e
	case pg.Code == "22021" || pg.Code == "22P05": // characters that Postgres does not store
		return &flows.Error{Code: flows.CodeInvalid, Message: "the request has a character that cannot be stored", Op: op, Err: err}
	case pg.Code == "42P01" || pg.Code == "42703" || pg.Code == "42883": // table, column or function unknown
		e := unavailable(op, err)
		e.Message = "the database's schema is missing or of another version: start the API, or run mirrorctl migrate"
		return e
	case pg.Code == "3D000" || strings.HasPrefix(pg.Code, "28"): // database unknown; login refused
		e := unavailable(op, err)
		e.Message = "Postgres refuses the connection: the database or the login in MIRRORFLOW_DATABASE_URL is wrong"
		return e
	case strings.HasPrefix(pg.Code, "08"), // connection
		strings.HasPrefix(pg.Code, "40"), // rolled back for another's sake
		strings.HasPrefix(pg.Code, "53"), // resources
		strings.HasPrefix(pg.Code, "57"), // cancelled, shutting down, starting up
		pg.Code == "25006",               // read only, as during a failover
		pg.Code == "25P03",               // idle in transaction for too long
		pg.Code == "55P03":               // lock not available in time
		return unavailable(op, err)
	}
	return internal(op, err)
}

func unavailable(op string, err error) *flows.Error {
	return &flows.Error{
		Code: flows.CodeUnavailable, Message: "the database does not answer now; try again", RetryAfter: 2 * time.Second,
		Op: op, Err: err,
	}
}

func internal(op string, err error) *flows.Error {
	return &flows.Error{Code: flows.CodeInternal, Message: "an internal fault; the log says more", Op: op, Err: err}
}

// missing says which object does not exist; other errors stay.
func missing(err error, noun, id string) error {
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return &flows.Error{Code: flows.CodeNotFound, Message: "there is no " + noun + " " + id}
}
