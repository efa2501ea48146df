-- When a task was last observed, as its worker's clock has it: a status that did not change is not stored again.

-- +goose Up
ALTER TABLE tasks ADD COLUMN observed_at timestamptz;

-- +goose Down
ALTER TABLE tasks DROP COLUMN observed_at;
