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
UPDATE tasks t SET runnable = f.enabled AND t.task < f.tasks_max, changed_at = now(), moving_to = ''
FROM flows f
WHERE f.id = @flow_id AND t.flow_id = f.id
  AND t.runnable <> (f.enabled AND t.task < f.tasks_max);

-- name: TrimTasks :exec
DELETE FROM tasks t USING flows f
WHERE f.id = t.flow_id AND t.flow_id = ANY (@flow_ids::uuid[]) AND t.task >= f.tasks_max AND t.owner = '';

-- name: FlowTasks :many
SELECT t.task, t.owner, t.epoch, t.status, t.status_epoch, t.observed_at AS last_observed_at,
       COALESCE(t.owner <> '' AND w.expires_at > now(), false)::boolean AS held,
       (CASE WHEN w.expires_at <= now() THEN w.expires_at ELSE t.changed_at END)::timestamptz AS since,
       (SELECT count(*) FROM workers x WHERE x.expires_at > now()) AS alive,
       now()::timestamptz AS observed_at
FROM tasks t
LEFT JOIN workers w ON w.id = t.owner
WHERE t.flow_id = @flow_id
ORDER BY t.task;

-- name: BeatWorker :exec
INSERT INTO workers (id, expires_at, taking_at) VALUES (@worker, now() + @ttl::interval, now())
ON CONFLICT (id) DO UPDATE SET expires_at = greatest(workers.expires_at, excluded.expires_at), taking_at = now();

-- name: LeaveWorker :exec
UPDATE workers SET taking_at = '-infinity' WHERE id = @worker;

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
UPDATE tasks t SET owner = '', changed_at = now(), unconfirmed_at = NULL, moving_to = ''
FROM mine WHERE t.flow_id = mine.flow_id AND t.task = mine.task
RETURNING t.flow_id;

-- name: AcquireTasks :many
-- One statement: what is free is locked, given and counted up together. All but the first look-up is
-- computed only when something is free. A flow with another number of tasks than its holders know waits
-- until the last of them has released.
--
-- A task that is on its way to a worker (MarkMove) is that worker's whatever its share, and nobody else's
-- for 3 s. Of what is left a worker takes its fair share, and for 2 s no more than its fair share of a
-- flow, so that the flow's tasks spread. Each begins with other tasks (ordinal), so that they do not meet.
WITH live AS MATERIALIZED (
    SELECT w.id, row_number() OVER (ORDER BY w.id) AS ordinal FROM workers w
    WHERE w.expires_at > now() AND (w.taking_at > now() - interval '5 s' OR w.id = @worker)
), mixed AS MATERIALIZED (
    SELECT h.flow_id FROM tasks h JOIN flows f ON f.id = h.flow_id
    WHERE h.owner <> '' AND h.layout <> f.tasks_max
), free AS MATERIALIZED (
    (SELECT t.flow_id, t.task, t.changed_at, t.moving_to, true AS meant FROM tasks t
     WHERE t.runnable AND t.owner = '' AND t.moving_to = @worker AND t.moving_to <> '')
    UNION ALL
    (SELECT t.flow_id, t.task, t.changed_at, t.moving_to, false AS meant FROM tasks t
     WHERE t.runnable AND t.owner = '' AND t.moving_to <> @worker
       AND (t.moving_to = '' OR t.changed_at <= now() - interval '3 s' OR t.moving_to NOT IN (SELECT live.id FROM live))
     ORDER BY t.changed_at, t.flow_id, t.task
     LIMIT greatest(256, @max_tasks::bigint))
), own AS (
    SELECT h.flow_id, count(*) AS n FROM tasks h
    WHERE h.owner = @worker AND h.owner <> '' AND h.flow_id IN (SELECT free.flow_id FROM free)
    GROUP BY h.flow_id
), ranked AS (
    SELECT free.*, ceil(f.tasks_max::numeric / (SELECT count(*) FROM live)) - COALESCE(own.n, 0) AS flow_share,
           row_number() OVER (PARTITION BY free.flow_id ORDER BY free.meant DESC,
               (free.task + (SELECT live.ordinal FROM live WHERE live.id = @worker)) % (SELECT count(*) FROM live), free.task) AS nth
    FROM free JOIN flows f ON f.id = free.flow_id LEFT JOIN own ON own.flow_id = free.flow_id
    WHERE free.flow_id NOT IN (SELECT mixed.flow_id FROM mixed)
), wanted AS MATERIALIZED (
    SELECT r.flow_id, r.task, r.changed_at, r.moving_to, r.meant, r.nth FROM ranked r
    WHERE r.meant OR r.nth <= r.flow_share OR r.changed_at <= now() - interval '2 s'
), pick AS (
    SELECT t.flow_id, t.task FROM tasks t
    JOIN wanted w ON w.flow_id = t.flow_id AND w.task = t.task AND w.moving_to = t.moving_to
    WHERE t.runnable AND t.owner || '' = '' -- written so that the rows are found by their key, never by going through all free ones
    ORDER BY w.meant DESC, w.changed_at, w.flow_id, w.nth
    LIMIT CASE
        WHEN NOT EXISTS (SELECT 1 FROM wanted) THEN 0
        ELSE least(@max_tasks::bigint, greatest((SELECT count(*) FROM wanted WHERE wanted.meant),
            CASE WHEN (SELECT count(*) FROM live) = 1
                 THEN @max_tasks::bigint
                 ELSE (SELECT ceil(count(*)::numeric / (SELECT count(*) FROM live))::bigint FROM tasks r WHERE r.runnable)
                      - (SELECT count(*) FROM tasks h WHERE h.owner = @worker AND h.owner <> '' AND h.runnable)
                      - (SELECT count(*) FROM tasks c
                         WHERE c.moving_to = @worker AND c.moving_to <> '' AND c.owner <> '' AND c.runnable)
            END))
    END
    FOR UPDATE OF t SKIP LOCKED
)
UPDATE tasks t SET owner = @worker, epoch = t.epoch + 1, changed_at = now(), unconfirmed_at = now(), moving_to = ''
FROM pick WHERE t.flow_id = pick.flow_id AND t.task = pick.task
RETURNING t.flow_id, t.task, t.epoch;

-- name: AddHeld :exec
UPDATE workers SET held = held + @added WHERE id = @worker;

-- name: Peers :many
-- Who takes tasks, the least loaded first, with what is on its way to them. held lags behind: what was released
-- since the last renewal is still in it. A worker is settled when it has lived for a while, so that one that dies
-- again and again is given nothing.
SELECT w.id, (w.held + (SELECT count(*) FROM tasks t WHERE t.moving_to = w.id AND t.moving_to <> ''))::bigint AS load,
       (w.started_at <= now() - interval '2 s')::boolean AS settled
FROM workers w
WHERE w.expires_at > now() AND w.taking_at > now() - interval '5 s'
ORDER BY load, w.id;

-- name: MovingTasks :many
SELECT t.flow_id, t.task, t.epoch, t.moving_to FROM tasks t
WHERE t.owner = @worker AND t.moving_to <> ''
ORDER BY t.flow_id, t.task;

-- name: StayTasks :exec
UPDATE tasks t SET moving_to = '' WHERE t.owner = @worker AND t.moving_to <> '';

-- name: SpreadTarget :many
-- A settled worker that has at least two fewer of some flow than the worker, the least loaded first.
WITH several AS (
    SELECT t.flow_id, count(*) AS n FROM tasks t
    WHERE t.owner = @worker AND t.owner <> '' AND t.runnable AND t.moving_to = ''
    GROUP BY t.flow_id HAVING count(*) >= 2
), holders AS (
    SELECT t.flow_id, CASE WHEN t.moving_to <> '' THEN t.moving_to ELSE t.owner END AS id, count(*) AS n FROM tasks t
    WHERE t.flow_id IN (SELECT several.flow_id FROM several) AND t.runnable
    GROUP BY 1, 2
)
SELECT w.id FROM workers w CROSS JOIN several s
LEFT JOIN holders h ON h.flow_id = s.flow_id AND h.id = w.id
WHERE w.id <> @worker AND w.id = ANY (@settled::text[]) AND COALESCE(h.n, 0) + 2 <= s.n
ORDER BY w.held, s.n - COALESCE(h.n, 0) DESC, w.id
LIMIT 1;

-- name: LockPeer :many
-- One at a time decides to give a worker something, until the end of its transaction; who comes meanwhile looks
-- again later. Its row is not locked: a giver that is frozen at this moment must not keep it from renewing.
SELECT w.id FROM workers w
WHERE w.id = @peer AND w.expires_at > now() AND w.taking_at > now() - interval '5 s'
  AND pg_try_advisory_xact_lock(hashtextextended('mirrorflow: move a task to ' || @peer, 0));

-- name: MarkMove :many
-- The loads are counted now that nobody else decides about the peer, what is on its way included. Two loads or two numbers of a
-- flow's tasks that differ by one are equal. For the sake of the loads only tasks of flows of which the peer has
-- fewer go, so that the tasks of a flow never come together again: that keeps moves from undoing one another.
WITH mine AS (
    SELECT t.flow_id, count(*) AS n FROM tasks t
    WHERE t.runnable AND ((t.owner = @worker AND t.moving_to = '') OR t.moving_to = @worker)
    GROUP BY t.flow_id
), theirs AS (
    SELECT t.flow_id, count(*) AS n FROM tasks t
    WHERE t.runnable AND ((t.owner = @peer AND t.moving_to = '') OR t.moving_to = @peer)
    GROUP BY t.flow_id
), pick AS (
    SELECT t.flow_id, t.task FROM tasks t JOIN mine m ON m.flow_id = t.flow_id LEFT JOIN theirs h ON h.flow_id = t.flow_id
    WHERE t.owner = @worker AND t.owner <> '' AND t.runnable AND t.moving_to = ''
      AND (m.n >= COALESCE(h.n, 0) + 2
           OR (m.n > COALESCE(h.n, 0)
               AND (SELECT COALESCE(sum(mine.n), 0) FROM mine) >= (SELECT COALESCE(sum(theirs.n), 0) FROM theirs) + 2))
    ORDER BY m.n - COALESCE(h.n, 0) DESC, t.changed_at, t.flow_id, t.task
    LIMIT 1
)
UPDATE tasks t SET moving_to = @peer
FROM pick WHERE t.flow_id = pick.flow_id AND t.task = pick.task AND t.owner = @worker
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
UPDATE workers SET expires_at = greatest(expires_at, now() + @ttl::interval), held = @held
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
-- An empty status says that the one stored is still true; it must be of the same epoch.
WITH k AS (
    SELECT unnest(@flow_ids::uuid[]) AS flow_id, unnest(@tasks::int[]) AS task,
           unnest(@epochs::bigint[]) AS epoch, unnest(@statuses::text[]) AS status, unnest(@observed::timestamptz[]) AS observed
), mine AS (
    SELECT t.flow_id, t.task, k.status, k.observed FROM tasks t
    JOIN k ON k.flow_id = t.flow_id AND k.task = t.task AND k.epoch = t.epoch
    WHERE t.owner = @worker AND t.owner <> '' AND (k.status <> '' OR t.status_epoch = t.epoch)
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker AND w.expires_at > now())
    ORDER BY t.flow_id, t.task FOR UPDATE OF t
)
UPDATE tasks t SET status = CASE WHEN mine.status = '' THEN t.status ELSE mine.status::jsonb END,
       status_epoch = t.epoch, reported_at = now(), observed_at = mine.observed
FROM mine WHERE t.flow_id = mine.flow_id AND t.task = mine.task
RETURNING t.flow_id, t.task, t.epoch;

-- name: HoldTask :one
-- The row stays locked until the end of the transaction: nobody can take the task while its
-- holder writes.
SELECT t.flow_id FROM tasks t
WHERE t.flow_id = @flow_id AND t.task = @task AND t.owner = @worker AND t.owner <> '' AND t.epoch = @epoch
  AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker AND w.expires_at > now())
FOR UPDATE OF t;
