-- Running tasks move to workers that have fewer. moving_to names the worker that a task is meant for, from the
-- decision until that worker has it: its holder drains and releases it. taking_at is when a worker last looked for
-- tasks, -infinity when it is stopping; held is how many leases it renewed last.

-- +goose Up
ALTER TABLE workers ADD COLUMN taking_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE workers ADD COLUMN held integer NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN moving_to text NOT NULL DEFAULT '';
CREATE INDEX tasks_moving_idx ON tasks (moving_to) WHERE moving_to <> '';

-- +goose Down
DROP INDEX tasks_moving_idx;
ALTER TABLE tasks DROP COLUMN moving_to;
ALTER TABLE workers DROP COLUMN held;
ALTER TABLE workers DROP COLUMN taking_at;
