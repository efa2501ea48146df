package flows

// Condition codes that need no engine: the rules state them, or the worker around an engine does. The
// engine's codes are in internal/engine/report, the catalogue of all is docs/conditions.md.
const (
	// ConditionNoWorker: an enabled flow has tasks that no living worker holds.
	ConditionNoWorker = "NO_WORKER"
	// ConditionSecretsUnreadable: the worker has no private key for a secret of one of the flow's services.
	ConditionSecretsUnreadable = "SECRETS_UNREADABLE"
	// ConditionTaskFault: the engine returned an unexpected error; it is started again with back-off.
	ConditionTaskFault = "TASK_FAULT"
)
