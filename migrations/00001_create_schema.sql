-- Postgres holds intent, leases and reported status; positions live in the target cluster.
-- Every constraint has a name: internal/store translates names to error codes.

-- +goose Up
CREATE TABLE projects (
    id uuid CONSTRAINT projects_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT projects_name_check CHECK (name <> ''),
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT projects_name_key UNIQUE (name)
);

CREATE TABLE tokens (
    id uuid CONSTRAINT tokens_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT tokens_project_fkey REFERENCES projects (id) ON DELETE CASCADE,
    name text NOT NULL,
    hash bytea NOT NULL CONSTRAINT tokens_hash_check CHECK (octet_length(hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tokens_hash_key UNIQUE (hash)
);
CREATE INDEX tokens_project_idx ON tokens (project_id);

CREATE TABLE services (
    id uuid CONSTRAINT services_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT services_project_fkey REFERENCES projects (id),
    engine text NOT NULL CONSTRAINT services_engine_check CHECK (engine IN ('kafka', 'kafkaMirrorMaker')),
    description text NOT NULL,
    alias text,
    alias_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    bootstrap_servers text[] NOT NULL,
    security jsonb NOT NULL,
    sealed jsonb NOT NULL,
    kafka_cluster_id text NOT NULL DEFAULT '',
    kafka_version text NOT NULL DEFAULT '',
    plan text NOT NULL,
    version text NOT NULL,
    nodes_pattern jsonb,
    status text NOT NULL CONSTRAINT services_status_check CHECK (status IN ('PENDING', 'READY', 'ERROR')),
    status_detail text NOT NULL DEFAULT '',
    revision bigint NOT NULL DEFAULT 1,
    credentials_revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT services_alias_check CHECK ((engine = 'kafka') = (alias IS NOT NULL)),
    CONSTRAINT services_alias_key UNIQUE (project_id, alias)
);
CREATE INDEX services_project_idx ON services (project_id, id);

CREATE TABLE integrations (
    id uuid CONSTRAINT integrations_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT integrations_project_fkey REFERENCES projects (id),
    type text NOT NULL,
    source_service_id uuid NOT NULL CONSTRAINT integrations_source_fkey REFERENCES services (id),
    destination_service_id uuid NOT NULL CONSTRAINT integrations_destination_fkey REFERENCES services (id),
    parameters jsonb,
    status text NOT NULL CONSTRAINT integrations_status_check CHECK (status = 'READY'),
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT integrations_ends_key UNIQUE (source_service_id, destination_service_id)
);
CREATE INDEX integrations_project_idx ON integrations (project_id, id);
CREATE INDEX integrations_destination_idx ON integrations (destination_service_id);

-- aliases_at: whoever runs the flow at its current revision knows the aliases that were given before.
-- The services of both ends are copied from the integrations, which never change.
CREATE TABLE flows (
    id uuid CONSTRAINT flows_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT flows_project_fkey REFERENCES projects (id),
    mirror_maker_id uuid NOT NULL CONSTRAINT flows_mirror_maker_fkey REFERENCES services (id),
    source_integration_id uuid NOT NULL CONSTRAINT flows_source_integration_fkey REFERENCES integrations (id),
    target_integration_id uuid NOT NULL CONSTRAINT flows_target_integration_fkey REFERENCES integrations (id),
    source_service_id uuid NOT NULL CONSTRAINT flows_source_service_fkey REFERENCES services (id),
    target_service_id uuid NOT NULL CONSTRAINT flows_target_service_fkey REFERENCES services (id),
    replication_policy_class text NOT NULL,
    replication_policy_separator text NOT NULL,
    enabled boolean NOT NULL,
    topics text[] NOT NULL,
    topic_exclude_list text[] NOT NULL,
    sync_group_offsets boolean NOT NULL,
    sync_interval_ms bigint NOT NULL,
    emit_heartbeats boolean NOT NULL,
    "groups" text[] NOT NULL,
    group_exclude_list text[] NOT NULL,
    tasks_max integer NOT NULL CONSTRAINT flows_tasks_max_check CHECK (tasks_max >= 1),
    replication_factor integer NOT NULL,
    offset_syncs_topic_location text NOT NULL,
    offset_lag_max bigint NOT NULL,
    isolation_level text NOT NULL,
    start_position text NOT NULL,
    start_at timestamptz,
    sync_topic_configs boolean NOT NULL,
    topic_config_sync_mode text NOT NULL,
    config_properties_exclude text[] NOT NULL,
    emit_heartbeats_interval_ms bigint NOT NULL,
    emit_backward_heartbeats boolean NOT NULL,
    emit_checkpoints_interval_ms bigint NOT NULL,
    refresh_topics_interval_ms bigint NOT NULL,
    refresh_groups_interval_ms bigint NOT NULL,
    last_event bigint NOT NULL DEFAULT 0,
    aliases_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT flows_ends_check CHECK (source_service_id <> target_service_id)
);
CREATE INDEX flows_project_idx ON flows (project_id, id);
CREATE INDEX flows_mirror_maker_idx ON flows (mirror_maker_id);
CREATE INDEX flows_source_integration_idx ON flows (source_integration_id);
CREATE INDEX flows_target_integration_idx ON flows (target_integration_id);
CREATE INDEX flows_source_service_idx ON flows (source_service_id);
CREATE INDEX flows_target_service_idx ON flows (target_service_id);

-- A worker's row is the clock of all its leases: renewing one row renews them all, so that the
-- number of tasks costs nothing. A row that ran out is removed by whoever sees it, and in the
-- same transaction its tasks become free.
CREATE TABLE workers (
    id text CONSTRAINT workers_pkey PRIMARY KEY CONSTRAINT workers_id_check CHECK (id <> ''),
    started_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX workers_expires_idx ON workers (expires_at);

-- owner '' means free. unconfirmed_at is set from acquiring until the owner's first renewal that
-- names the task, and again when a renewal leaves it out; it bounds how long a task can be held
-- by a worker that does not know that it holds it.
CREATE TABLE tasks (
    flow_id uuid NOT NULL CONSTRAINT tasks_flow_fkey REFERENCES flows (id) ON DELETE CASCADE,
    task integer NOT NULL,
    runnable boolean NOT NULL,
    owner text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT now(),
    unconfirmed_at timestamptz,
    status jsonb,
    status_epoch bigint NOT NULL DEFAULT 0,
    reported_at timestamptz,
    CONSTRAINT tasks_pkey PRIMARY KEY (flow_id, task),
    CONSTRAINT tasks_task_check CHECK (task >= 0)
);
CREATE INDEX tasks_free_idx ON tasks (changed_at, flow_id, task) WHERE runnable AND owner = '';
CREATE INDEX tasks_owner_idx ON tasks (owner) WHERE owner <> '';
CREATE INDEX tasks_runnable_idx ON tasks (runnable) WHERE runnable;

-- A job without a service is waited for by an API until abandon_at; one with a service stays
-- until it has succeeded or the service changes.
CREATE TABLE jobs (
    id uuid CONSTRAINT jobs_pkey PRIMARY KEY,
    kind text NOT NULL CONSTRAINT jobs_kind_check CHECK (kind IN ('check_service', 'forget_positions')),
    payload jsonb NOT NULL,
    service_id uuid CONSTRAINT jobs_service_fkey REFERENCES services (id) ON DELETE CASCADE,
    attempts integer NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT now(),
    abandon_at timestamptz,
    owner text NOT NULL DEFAULT '',
    expires_at timestamptz NOT NULL DEFAULT '-infinity',
    result jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT jobs_bound_check CHECK ((service_id IS NULL) = (abandon_at IS NOT NULL))
);
CREATE INDEX jobs_waiting_idx ON jobs (run_at) WHERE result IS NULL;
CREATE INDEX jobs_service_idx ON jobs (service_id);
CREATE INDEX jobs_abandon_idx ON jobs (abandon_at);

CREATE TABLE events (
    flow_id uuid NOT NULL CONSTRAINT events_flow_fkey REFERENCES flows (id) ON DELETE CASCADE,
    id bigint NOT NULL,
    at timestamptz NOT NULL,
    code text NOT NULL,
    subject jsonb NOT NULL,
    message text NOT NULL,
    evidence jsonb,
    worker text NOT NULL,
    task_epoch bigint NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (flow_id, id)
);

CREATE TABLE topic_owners (
    kafka_cluster_id text NOT NULL,
    topic text NOT NULL,
    flow_id uuid NOT NULL CONSTRAINT topic_owners_flow_fkey REFERENCES flows (id) ON DELETE CASCADE,
    claimed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT topic_owners_pkey PRIMARY KEY (kafka_cluster_id, topic)
);
CREATE INDEX topic_owners_flow_idx ON topic_owners (flow_id);

-- +goose Down
DROP TABLE topic_owners;
DROP TABLE events;
DROP TABLE jobs;
DROP TABLE tasks;
DROP TABLE workers;
DROP TABLE flows;
DROP TABLE integrations;
DROP TABLE services;
DROP TABLE tokens;
DROP TABLE projects;
