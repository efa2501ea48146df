-- Which task copies a partition depends on how many tasks the flow has. layout says how many it had for whoever
-- holds a task, so that no task is given out while another one is held under another number: two of them could
-- copy the same partition at once. It means nothing while the task is free.

-- +goose Up
ALTER TABLE tasks ADD COLUMN layout integer NOT NULL DEFAULT 0;
UPDATE tasks t SET layout = f.tasks_max FROM flows f WHERE f.id = t.flow_id;

-- +goose Down
ALTER TABLE tasks DROP COLUMN layout;
