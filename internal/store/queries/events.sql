-- name: ReserveEvents :one
UPDATE flows SET last_event = last_event + @events::bigint WHERE id = @flow_id RETURNING last_event;

-- name: InsertEvents :exec
-- An event without a time gets the database's.
WITH e AS (
    SELECT generate_subscripts(@codes::text[], 1) AS n, unnest(@ats::timestamptz[]) AS at,
           unnest(@codes::text[]) AS code, unnest(@subjects::text[]) AS subject,
           unnest(@messages::text[]) AS message, unnest(@evidences::text[]) AS evidence
)
INSERT INTO events (flow_id, id, at, code, subject, message, evidence, worker, task_epoch)
SELECT @flow_id, e.n + CAST(@before_first AS bigint), COALESCE(NULLIF(e.at, 'epoch'), now()), e.code, e.subject::jsonb, e.message,
       NULLIF(e.evidence, '')::jsonb, @worker, @task_epoch
FROM e;

-- name: TrimEvents :exec
DELETE FROM events WHERE flow_id = @flow_id AND id <= @last_gone;

-- name: ListEvents :many
SELECT * FROM events WHERE flow_id = @flow_id AND id < @before ORDER BY id DESC LIMIT @max_rows;

-- name: ClaimTopics :many
-- The first owner keeps a topic; claiming one's own again changes nothing. Ordered, so that
-- two claimers of the same names wait for each other instead of deadlocking.
WITH wanted AS (
    SELECT DISTINCT topic FROM unnest(@topics::text[]) AS u (topic) ORDER BY topic
)
INSERT INTO topic_owners (kafka_cluster_id, topic, flow_id)
SELECT @kafka_cluster_id, topic, @flow_id FROM wanted ORDER BY topic
ON CONFLICT (kafka_cluster_id, topic) DO NOTHING
RETURNING topic;

-- name: ForeignTopics :many
-- What is another project's stays unnamed: nothing of it is to be seen here.
SELECT o.topic, (CASE WHEN own.project_id = f.project_id THEN o.flow_id
                      ELSE '00000000-0000-0000-0000-000000000000' END)::uuid AS flow_id
FROM topic_owners o
JOIN flows f ON f.id = o.flow_id
JOIN flows own ON own.id = @flow_id
WHERE o.kafka_cluster_id = @kafka_cluster_id AND o.topic = ANY (@topics::text[]) AND o.flow_id <> @flow_id
ORDER BY o.topic;

-- name: ReleaseTopics :exec
DELETE FROM topic_owners
WHERE kafka_cluster_id = @kafka_cluster_id AND topic = ANY (@topics::text[]) AND flow_id = @flow_id;
