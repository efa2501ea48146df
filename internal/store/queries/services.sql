-- name: GetService :one
SELECT * FROM services WHERE project_id = @project_id AND id = @id;

-- name: LockService :one
SELECT * FROM services WHERE project_id = @project_id AND id = @id FOR NO KEY UPDATE;

-- name: ListServices :many
SELECT * FROM services
WHERE project_id = @project_id AND id > @after
  AND (@engine::text = '' OR engine = @engine::text)
ORDER BY id LIMIT @max_rows;

-- name: InsertService :one
INSERT INTO services (
    id, project_id, engine, description, alias, bootstrap_servers, security, sealed,
    kafka_cluster_id, kafka_version, plan, version, nodes_pattern, status, status_detail
) VALUES (
    @id, @project_id, @engine, @description, @alias, @bootstrap_servers, @security, @sealed,
    @kafka_cluster_id, @kafka_version, @plan, @version, @nodes_pattern, @status, @status_detail
) RETURNING *;

-- name: UpdateService :one
UPDATE services SET
    description = @description, alias = @alias,
    alias_at = CASE WHEN alias IS DISTINCT FROM @alias THEN clock_timestamp() ELSE alias_at END, bootstrap_servers = @bootstrap_servers,
    security = @security, sealed = @sealed, kafka_cluster_id = @kafka_cluster_id,
    kafka_version = @kafka_version, plan = @plan, version = @version, nodes_pattern = @nodes_pattern,
    status = @status, status_detail = @status_detail, revision = revision + 1,
    credentials_revision = @credentials_revision, updated_at = now()
WHERE project_id = @project_id AND id = @id
RETURNING *;

-- name: DeleteService :execrows
DELETE FROM services WHERE project_id = @project_id AND id = @id;

-- name: ClusterInUse :one
-- The cluster id that flows with an end at the service rely on; '' when nobody does.
SELECT COALESCE(max(s.kafka_cluster_id), '')::text FROM services s
WHERE s.id = @id AND EXISTS (SELECT FROM flows f WHERE f.source_service_id = s.id OR f.target_service_id = s.id);

-- name: SetServiceChecked :execrows
-- What a later check found. An unchanged finding is no change: repeated failures must not
-- make every reader's ETag stale.
UPDATE services SET
    kafka_cluster_id = CASE WHEN @kafka_cluster_id::text = '' THEN kafka_cluster_id ELSE @kafka_cluster_id::text END,
    kafka_version = CASE WHEN @kafka_version::text = '' THEN kafka_version ELSE @kafka_version::text END,
    status = @status, status_detail = @status_detail,
    revision = revision + 1, updated_at = now()
WHERE id = @id AND (
    (status, status_detail) IS DISTINCT FROM (@status, @status_detail)
    OR (@kafka_cluster_id::text <> '' AND kafka_cluster_id <> @kafka_cluster_id::text)
    OR (@kafka_version::text <> '' AND kafka_version <> @kafka_version::text)
);

-- name: IntegrationsOfService :many
SELECT id FROM integrations
WHERE source_service_id = @id OR destination_service_id = @id ORDER BY id;

-- name: FlowsOfService :many
SELECT id FROM flows
WHERE source_service_id = @id OR target_service_id = @id OR mirror_maker_id = @id ORDER BY id;

-- name: TouchFlowsOfService :many
UPDATE flows SET revision = revision + 1, aliases_at = clock_timestamp()
WHERE source_service_id = @id OR target_service_id = @id
RETURNING id;
