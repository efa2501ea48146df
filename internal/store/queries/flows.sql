-- name: GetFlow :one
SELECT * FROM flows WHERE project_id = @project_id AND id = @id;

-- name: LockFlow :one
SELECT * FROM flows WHERE project_id = @project_id AND id = @id FOR NO KEY UPDATE;

-- name: ListFlows :many
SELECT * FROM flows
WHERE project_id = @project_id AND id > @after
  AND (sqlc.narg('mirror_maker_id')::uuid IS NULL OR mirror_maker_id = sqlc.narg('mirror_maker_id')::uuid)
ORDER BY id LIMIT @max_rows;

-- name: FlowRoutes :many
-- Flows that write to the target, be it known by its service or by its cluster id, and all
-- flows that keep names, since those can form loops.
SELECT f.id, f.source_service_id, f.target_service_id, f.replication_policy_class,
       f.replication_policy_separator, f.topics, f.topic_exclude_list,
       s.alias::text AS source_alias,
       s.kafka_cluster_id AS source_cluster, t.kafka_cluster_id AS target_cluster
FROM flows f
JOIN services s ON s.id = f.source_service_id
JOIN services t ON t.id = f.target_service_id
WHERE f.project_id = @project_id
  AND (f.target_service_id = @target_service_id
       OR (@target_cluster::text <> '' AND t.kafka_cluster_id = @target_cluster::text)
       OR (@identity_class::text <> '' AND f.replication_policy_class = @identity_class::text))
ORDER BY f.id;

-- name: FlowEnds :many
SELECT f.id, f.source_service_id, f.target_service_id,
       s.kafka_cluster_id AS source_cluster, t.kafka_cluster_id AS target_cluster
FROM flows f
JOIN services s ON s.id = f.source_service_id
JOIN services t ON t.id = f.target_service_id
WHERE f.source_service_id = @service_id OR f.target_service_id = @service_id
ORDER BY f.id;

-- name: InsertFlow :one
INSERT INTO flows (
    id, project_id, mirror_maker_id, source_integration_id, target_integration_id,
    source_service_id, target_service_id, replication_policy_class, replication_policy_separator,
    enabled, topics, topic_exclude_list, sync_group_offsets, sync_interval_ms, emit_heartbeats,
    "groups", group_exclude_list, tasks_max, replication_factor, offset_syncs_topic_location,
    offset_lag_max, isolation_level, start_position, start_at, sync_topic_configs,
    topic_config_sync_mode, config_properties_exclude, emit_heartbeats_interval_ms,
    emit_backward_heartbeats, emit_checkpoints_interval_ms, refresh_topics_interval_ms,
    refresh_groups_interval_ms, max_bytes_per_second
) SELECT
    @id, @project_id, d.destination_service_id, @source_integration_id, @target_integration_id,
    s.source_service_id, d.source_service_id, @replication_policy_class, @replication_policy_separator,
    @enabled, @topics, @topic_exclude_list, @sync_group_offsets, @sync_interval_ms, @emit_heartbeats,
    @groups, @group_exclude_list, @tasks_max, @replication_factor, @offset_syncs_topic_location,
    @offset_lag_max, @isolation_level, @start_position, @start_at, @sync_topic_configs,
    @topic_config_sync_mode, @config_properties_exclude, @emit_heartbeats_interval_ms,
    @emit_backward_heartbeats, @emit_checkpoints_interval_ms, @refresh_topics_interval_ms,
    @refresh_groups_interval_ms, @max_bytes_per_second
FROM integrations s, integrations d
WHERE s.id = @source_integration_id AND d.id = @target_integration_id
RETURNING *;

-- name: UpdateFlow :one
UPDATE flows SET
    enabled = @enabled, topics = @topics, topic_exclude_list = @topic_exclude_list,
    sync_group_offsets = @sync_group_offsets, sync_interval_ms = @sync_interval_ms,
    emit_heartbeats = @emit_heartbeats, "groups" = @groups, group_exclude_list = @group_exclude_list,
    tasks_max = @tasks_max, replication_factor = @replication_factor,
    offset_syncs_topic_location = @offset_syncs_topic_location, offset_lag_max = @offset_lag_max,
    isolation_level = @isolation_level, start_position = @start_position, start_at = @start_at,
    sync_topic_configs = @sync_topic_configs, topic_config_sync_mode = @topic_config_sync_mode,
    config_properties_exclude = @config_properties_exclude,
    emit_heartbeats_interval_ms = @emit_heartbeats_interval_ms,
    emit_backward_heartbeats = @emit_backward_heartbeats,
    emit_checkpoints_interval_ms = @emit_checkpoints_interval_ms,
    refresh_topics_interval_ms = @refresh_topics_interval_ms,
    refresh_groups_interval_ms = @refresh_groups_interval_ms,
    max_bytes_per_second = @max_bytes_per_second,
    revision = revision + 1, aliases_at = clock_timestamp(), updated_at = now()
WHERE project_id = @project_id AND id = @id
RETURNING *;

-- name: TeachAliases :many
-- A new flow brings topics to its target, and flows from there carry them on, whose names begin with the aliases of its
-- source and of what flows into that. Flows that began before such an alias was given must learn it, or they would take
-- those names for ordinary topics and not see a loop. A cluster that is known by several services is one node.
WITH RECURSIVE node AS (
    SELECT s.id, s.alias_at, COALESCE(NULLIF(s.kafka_cluster_id, ''), s.id::text) AS name
    FROM services s WHERE s.project_id = @project_id AND s.engine = 'kafka'
), edge AS (
    SELECT f.id, f.aliases_at, a.name AS source, b.name AS target
    FROM flows f JOIN node a ON a.id = f.source_service_id JOIN node b ON b.id = f.target_service_id
    WHERE f.project_id = @project_id
), down AS (
    SELECT edge.target AS name FROM edge WHERE edge.id = @id::uuid
    UNION
    SELECT edge.target FROM edge JOIN down ON down.name = edge.source
), up AS (
    SELECT edge.source AS name FROM edge WHERE edge.id = @id::uuid
    UNION
    SELECT edge.source FROM edge JOIN up ON up.name = edge.target
), given AS (
    SELECT max(node.alias_at) AS at FROM node JOIN up ON up.name = node.name
), stale AS (
    SELECT DISTINCT edge.id FROM edge JOIN down ON down.name = edge.source JOIN given ON edge.aliases_at < given.at
    WHERE edge.id <> @id::uuid
)
UPDATE flows f SET revision = f.revision + 1, aliases_at = clock_timestamp()
FROM stale WHERE f.id = stale.id
RETURNING f.id;

-- name: DeleteFlow :execrows
DELETE FROM flows WHERE project_id = @project_id AND id = @id;

-- name: LockFlowKey :one
-- Before a task's row, as deleting the flow locks them: in the other order both would wait for ever.
SELECT id FROM flows WHERE id = @id FOR KEY SHARE;

-- name: FlowsForWorker :many
SELECT * FROM flows WHERE id = ANY (@ids::uuid[]);

-- name: ServicesForWorker :many
SELECT * FROM services WHERE id = ANY (@ids::uuid[]);

-- name: AliasesOfProjects :many
SELECT project_id, alias::text AS alias FROM services
WHERE project_id = ANY (@ids::uuid[]) AND engine = 'kafka' ORDER BY alias;
