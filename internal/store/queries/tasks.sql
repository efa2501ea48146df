-- name: SpreadTasks :exec
-- A flow has the rows 0..tasks_max-1, runnable while it is enabled. Rows above are not
-- runnable and go as soon as nobody holds them.
INSERT INTO tasks (flow_id, task, runnable)
SELECT f.id, n, f.enabled FROM flows f, generate_series(0, f.tasks_max - 1) AS n
WHERE f.id = @flow_id
ON CONFLICT (flow_id, task) DO NOTHING;

-- name: LockTasks :exec
-- Whoever acquires a task keeps its row locked until the flow is read. So once all rows are locked
-- here, what was acquired before was acquired with the flow as it was before.
SELECT task FROM tasks WHERE flow_id = @flow_id ORDER BY task FOR UPDATE;

-- name: SetTasksRunnable :exec
UPDATE tasks t SET runnable = f.enabled AND t.task < f.tasks_max, changed_at = now()
FROM flows f
WHERE f.id = @flow_id AND t.flow_id = f.id
  AND t.runnable <> (f.enabled AND t.task < f.tasks_max);

-- name: TrimTasks :exec
DELETE FROM tasks t USING flows f
WHERE f.id = t.flow_id AND t.flow_id = ANY (@flow_ids::uuid[]) AND t.task >= f.tasks_max AND t.owner = '';

-- name: FlowTasks :many
SELECT t.task, t.owner, t.epoch, t.status, t.status_epoch,
       COALESCE(t.owner <> '' AND w.expires_at > now(), false)::boolean AS held,
       (CASE WHEN w.expires_at <= now() THEN w.expires_at ELSE t.changed_at END)::timestamptz AS since,
       (SELECT count(*) FROM workers x WHERE x.expires_at > now()) AS alive,
       now()::timestamptz AS observed_at
FROM tasks t
LEFT JOIN workers w ON w.id = t.owner
WHERE t.flow_id = @flow_id
ORDER BY t.task;

-- name: BeatWorker :exec
INSERT INTO workers (id, expires_at) VALUES (@worker, now() + @ttl::interval)
ON CONFLICT (id) DO UPDATE SET expires_at = greatest(workers.expires_at, excluded.expires_at);

-- name: CountWorkers :one
SELECT count(*) FROM workers WHERE expires_at > now();

-- name: ReapWorkers :many
-- Removing the row is what ends a dead worker's leases: a renewal that comes later finds no
-- row, one that came first makes the row look alive when the lock is granted.
WITH dead AS (
    SELECT x.id FROM workers x WHERE x.expires_at <= clock_timestamp()
    ORDER BY x.id FOR UPDATE SKIP LOCKED
)
DELETE FROM workers w USING dead WHERE w.id = dead.id RETURNING w.id;

-- name: FreeTasksOf :many
WITH mine AS (
    SELECT m.flow_id, m.task FROM tasks m WHERE m.owner = ANY (@workers::text[]) AND m.owner <> ''
    ORDER BY m.flow_id, m.task FOR UPDATE
)
UPDATE tasks t SET owner = '', changed_at = now(), unconfirmed_at = NULL
FROM mine WHERE t.flow_id = mine.flow_id AND t.task = mine.task
RETURNING t.flow_id;

-- name: AcquireTasks :many
-- One statement: what is free is locked, given and counted up together. The fair share is
-- computed only when something is free, so that idle polling costs one index look-up. A flow with
-- another number of tasks than its holders know waits until the last of them has released.
WITH mixed AS MATERIALIZED (
    SELECT h.flow_id FROM tasks h JOIN flows f ON f.id = h.flow_id
    WHERE h.owner <> '' AND h.layout <> f.tasks_max
), pick AS (
    SELECT t.flow_id, t.task FROM tasks t
    WHERE t.runnable AND t.owner = '' AND t.flow_id NOT IN (SELECT mixed.flow_id FROM mixed)
    ORDER BY t.changed_at, t.flow_id, t.task
    LIMIT CASE
        WHEN NOT EXISTS (SELECT 1 FROM tasks f WHERE f.runnable AND f.owner = '') THEN 0
        ELSE greatest(0, least(@max_tasks::bigint,
            CASE WHEN (SELECT count(*) FROM workers w WHERE w.expires_at > now() AND w.id <> @worker) = 0
                 THEN @max_tasks::bigint
                 ELSE (SELECT ceil(count(*)::numeric
                              / (SELECT count(*) FROM workers w WHERE w.expires_at > now()))::bigint
                       FROM tasks r WHERE r.runnable)
                      - (SELECT count(*) FROM tasks h WHERE h.owner = @worker AND h.owner <> '' AND h.runnable)
            END))
    END
    FOR UPDATE SKIP LOCKED
)
UPDATE tasks t SET owner = @worker, epoch = t.epoch + 1, changed_at = now(), unconfirmed_at = now()
FROM pick WHERE t.flow_id = pick.flow_id AND t.task = pick.task
RETURNING t.flow_id, t.task, t.epoch;

-- name: SetTaskLayouts :exec
WITH k AS (
    SELECT unnest(@flow_ids::uuid[]) AS flow_id, unnest(@tasks::int[]) AS task, unnest(@layouts::int[]) AS layout
)
UPDATE tasks t SET layout = k.layout FROM k WHERE t.flow_id = k.flow_id AND t.task = k.task;

-- name: MixedFlows :many
-- AcquireTasks looks at the flow and at its other tasks as of its beginning. Both may have changed
-- before it got the row; this looks again, now that neither can.
SELECT DISTINCT h.flow_id FROM tasks h JOIN flows f ON f.id = h.flow_id
WHERE h.flow_id = ANY (@flow_ids::uuid[]) AND h.owner <> '' AND h.layout <> f.tasks_max;

-- name: RenewWorker :execrows
UPDATE workers SET expires_at = greatest(expires_at, now() + @ttl::interval)
WHERE id = @worker AND expires_at > clock_timestamp();

-- name: OwnedTasks :many
SELECT t.flow_id, t.task, t.epoch, f.revision, f.tasks_max, (f.enabled AND t.runnable)::boolean AS enabled,
       s.credentials_revision AS source_credentials_revision,
       d.credentials_revision AS target_credentials_revision,
       (t.unconfirmed_at IS NULL)::boolean AS confirmed,
       COALESCE(t.unconfirmed_at <= now() - @ttl::interval, false)::boolean AS forgotten
FROM tasks t
JOIN flows f ON f.id = t.flow_id
JOIN services s ON s.id = f.source_service_id
JOIN services d ON d.id = f.target_service_id
WHERE t.owner = @worker AND t.owner <> '';

-- name: ConfirmTasks :exec
WITH k AS (
    SELECT unnest(@flow_ids::uuid[]) AS flow_id, unnest(@tasks::int[]) AS task, unnest(@epochs::bigint[]) AS epoch
), mine AS (
    SELECT t.flow_id, t.task FROM tasks t JOIN k ON k.flow_id = t.flow_id AND k.task = t.task AND k.epoch = t.epoch
    WHERE t.owner = @worker AND t.owner <> ''
    ORDER BY t.flow_id, t.task FOR UPDATE OF t
)
UPDATE tasks t SET unconfirmed_at = CASE WHEN @confirmed::boolean THEN NULL ELSE now() END
FROM mine WHERE t.flow_id = mine.flow_id AND t.task = mine.task;

-- name: ReleaseTasks :many
WITH k AS (
    SELECT unnest(@flow_ids::uuid[]) AS flow_id, unnest(@tasks::int[]) AS task, unnest(@epochs::bigint[]) AS epoch
), mine AS (
    SELECT t.flow_id, t.task FROM tasks t JOIN k ON k.flow_id = t.flow_id AND k.task = t.task AND k.epoch = t.epoch
    WHERE t.owner = @worker AND t.owner <> ''
    ORDER BY t.flow_id, t.task FOR UPDATE OF t
)
UPDATE tasks t SET owner = '', changed_at = now(), unconfirmed_at = NULL
FROM mine WHERE t.flow_id = mine.flow_id AND t.task = mine.task
RETURNING t.flow_id;

-- name: RemoveIdleWorker :exec
-- A worker that holds nothing does not count for the others' fair share until it shows up again.
DELETE FROM workers w
WHERE w.id = @worker AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.owner = @worker AND t.owner <> '');

-- name: ReportTasks :many
WITH k AS (
    SELECT unnest(@flow_ids::uuid[]) AS flow_id, unnest(@tasks::int[]) AS task,
           unnest(@epochs::bigint[]) AS epoch, unnest(@statuses::text[]) AS status
), mine AS (
    SELECT t.flow_id, t.task, k.status FROM tasks t
    JOIN k ON k.flow_id = t.flow_id AND k.task = t.task AND k.epoch = t.epoch
    WHERE t.owner = @worker AND t.owner <> ''
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker AND w.expires_at > now())
    ORDER BY t.flow_id, t.task FOR UPDATE OF t
)
UPDATE tasks t SET status = mine.status::jsonb, status_epoch = t.epoch, reported_at = now()
FROM mine WHERE t.flow_id = mine.flow_id AND t.task = mine.task
RETURNING t.flow_id, t.task, t.epoch;

-- name: HoldTask :one
-- The row stays locked until the end of the transaction: nobody can take the task while its
-- holder writes.
SELECT t.flow_id FROM tasks t
WHERE t.flow_id = @flow_id AND t.task = @task AND t.owner = @worker AND t.owner <> '' AND t.epoch = @epoch
  AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker AND w.expires_at > now())
FOR UPDATE OF t;
