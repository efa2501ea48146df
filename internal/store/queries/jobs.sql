-- name: InsertJob :exec
INSERT INTO jobs (id, kind, payload, service_id, run_at, abandon_at)
VALUES (@id, @kind, @payload, sqlc.narg('service_id'), now() + @delay::interval,
        CASE WHEN sqlc.narg('service_id')::uuid IS NULL THEN now() + @keep_for::interval END);

-- name: PurgeJobs :exec
DELETE FROM jobs WHERE abandon_at < now() - interval '1 minute';

-- name: DeleteJob :exec
DELETE FROM jobs WHERE id = @id;

-- name: DeleteUnboundJob :exec
DELETE FROM jobs WHERE id = @id AND service_id IS NULL;

-- name: DeleteJobsOfService :exec
DELETE FROM jobs WHERE service_id = @service_id;

-- name: JobResult :one
SELECT result FROM jobs WHERE id = @id;

-- name: LockJob :one
SELECT result FROM jobs WHERE id = @id FOR UPDATE;

-- name: BindJob :exec
UPDATE jobs SET service_id = @service_id, abandon_at = NULL WHERE id = @id;

-- name: ClaimJob :one
WITH pick AS (
    SELECT j.id FROM jobs j
    WHERE j.result IS NULL AND j.run_at <= now() AND j.expires_at <= now()
      AND (j.abandon_at IS NULL OR j.abandon_at > now())
    ORDER BY j.run_at LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs j SET owner = @worker, expires_at = now() + @ttl::interval, attempts = j.attempts + 1
FROM pick WHERE j.id = pick.id
RETURNING j.id, j.kind, j.payload;

-- name: LockServiceOfJob :exec
-- The service before the job, as changing a service locks them.
SELECT s.id FROM services s
WHERE s.id = (SELECT j.service_id FROM jobs j WHERE j.id = @job_id) FOR NO KEY UPDATE OF s;

-- name: CompleteJob :one
UPDATE jobs SET result = @result, owner = ''
WHERE id = @id AND owner = @worker AND owner <> '' AND result IS NULL
RETURNING kind, service_id;

-- name: RetryJob :exec
-- A bound check that failed comes again, ever less often, until the cluster answers.
UPDATE jobs SET result = NULL, owner = '', expires_at = '-infinity',
    run_at = now() + least(interval '5 minutes', interval '10 seconds' * power(2, least(attempts, 10)))
WHERE id = @id;

-- name: Notify :exec
SELECT pg_notify('mirrorflow', unnest(@payloads::text[]));
