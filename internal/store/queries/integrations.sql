-- name: GetIntegration :one
SELECT * FROM integrations WHERE project_id = @project_id AND id = @id;

-- name: ListIntegrations :many
SELECT * FROM integrations
WHERE project_id = @project_id AND id > @after
  AND (sqlc.narg('service_id')::uuid IS NULL
       OR sqlc.narg('service_id')::uuid IN (source_service_id, destination_service_id))
ORDER BY id LIMIT @max_rows;

-- name: IntegrationBetween :one
SELECT id FROM integrations
WHERE source_service_id = @source_service_id AND destination_service_id = @destination_service_id;

-- name: InsertIntegration :one
INSERT INTO integrations (
    id, project_id, type, source_service_id, destination_service_id, parameters, status
) VALUES (
    @id, @project_id, @type, @source_service_id, @destination_service_id, @parameters, 'READY'
) RETURNING *;

-- name: DeleteIntegration :execrows
DELETE FROM integrations WHERE project_id = @project_id AND id = @id;

-- name: FlowsOfIntegration :many
SELECT id FROM flows
WHERE source_integration_id = @id OR target_integration_id = @id ORDER BY id;
