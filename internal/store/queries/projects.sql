-- name: InsertProject :one
INSERT INTO projects (id, name) VALUES (@id, @name) RETURNING *;

-- name: EnsureProject :one
-- The update changes nothing; it makes the row come back whether it was there or not.
INSERT INTO projects (id, name) VALUES (@id, @name)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING *;

-- name: ProjectByName :one
SELECT * FROM projects WHERE name = @name;

-- name: ListProjects :many
SELECT * FROM projects ORDER BY name;

-- name: ProjectByToken :one
SELECT p.* FROM tokens t JOIN projects p ON p.id = t.project_id WHERE t.hash = @hash;

-- name: InsertToken :one
INSERT INTO tokens (id, project_id, name, hash) VALUES (@id, @project_id, @name, @hash) RETURNING *;

-- name: ListTokens :many
SELECT * FROM tokens WHERE project_id = @project_id ORDER BY created_at, id;

-- name: DeleteToken :execrows
DELETE FROM tokens WHERE project_id = @project_id AND id = @id;

-- name: LockProject :one
-- Everything that changes a project's objects queues here; NO KEY, since inserts of rows that
-- refer to the project need its key only.
SELECT id FROM projects WHERE id = @id FOR NO KEY UPDATE;
