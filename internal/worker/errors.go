package worker

import (
	"errors"
	"fmt"

	"github.com/mirrorflow/mirrorflow/internal/engine"
	"github.com/mirrorflow/mirrorflow/internal/lifecycle"
)

// Causes of the end of a task's context, and reasons of its drains.
var (
	// ErrLeaseLost: trust ended or the database says that the lease is another's. The engine
	// stops at once and stores nothing.
	ErrLeaseLost = fmt.Errorf("the lease is lost: %w", engine.ErrLeaseLost)
	// ErrFlowChanged: the flow's specification changed; the engine starts again with the new one.
	ErrFlowChanged = errors.New("the flow changed")
	// ErrTasksChanged: the flow has another number of tasks, and other partitions are each one's. The
	// lease is released: the flow starts again when all of them are, on whichever worker.
	ErrTasksChanged = errors.New("the number of the flow's tasks changed")
	// ErrTaskMoved: another worker has fewer tasks. The lease is released and kept for that worker, which takes over
	// at once.
	ErrTaskMoved = errors.New("the task moves to another worker")
	// ErrFlowDisabled: the flow was disabled or deleted.
	ErrFlowDisabled = errors.New("the flow is disabled")
	// ErrShutdown: the process is going.
	ErrShutdown = lifecycle.ErrShutdown
	// errOverdue: an engine did not return though its drain was overdue (engine.ErrDrainOverdue), so
	// it is cut off. It wraps the engine's ErrLeaseLost because that is how an engine is told to stop
	// at once.
	errOverdue = fmt.Errorf("the drain took too long: %w", engine.ErrLeaseLost)
)
