-- NULL: no limit. The floor is the largest number of tasks, so that no task's share is 0.

-- +goose Up
ALTER TABLE flows ADD COLUMN max_bytes_per_second bigint
    CONSTRAINT flows_max_bytes_per_second_check CHECK (max_bytes_per_second >= 1024);

-- +goose Down
ALTER TABLE flows DROP COLUMN max_bytes_per_second;
