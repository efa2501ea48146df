package httpapi

import (
	"bytes"
	"context"
	"errors"

	"github.com/oapi-codegen/nullable"

	"github.com/mirrorflow/mirrorflow/internal/flows"
	"github.com/mirrorflow/mirrorflow/internal/http/apigen"
)

// handlers implements every operation of the contract. Requests that get here
// have a project (where the contract wants one) and follow the contract.
type handlers struct{ *server }

var _ apigen.StrictServerInterface = (*handlers)(nil)

// sentBody returns the body as a tree, for what Go types cannot tell: which
// members were sent.
func sentBody(ctx context.Context) map[string]any {
	tree, _ := infoFrom(ctx).body.(map[string]any)
	return tree
}

// checkAgainst compares a tree with a named schema of the contract.
func (h *handlers) checkAgainst(name string, tree any) error {
	if fields := violations(h.contract.spec.Components.Schemas[name].Value, tree); len(fields) > 0 {
		return invalidFields(fields...)
	}
	return nil
}

// listError names the cursor in what a list refuses: it is the only part of a
// page that the contract cannot judge.
func listError(err error) error {
	var e *flows.Error
	if errors.As(err, &e) && e.Code == flows.CodeInvalid && len(e.Fields) == 0 {
		return invalidParameter("cursor", e.Message)
	}
	return err
}

func nextCursor(next string) nullable.Nullable[string] { return nullIfEmpty(next) }

// GetHealth answers as long as the process can.
func (h *handlers) GetHealth(context.Context, apigen.GetHealthRequestObject) (apigen.GetHealthResponseObject, error) {
	return apigen.GetHealth200JSONResponse{Status: apigen.HealthStatusOk}, nil
}

// GetReadiness asks the domain whether requests can be served.
func (h *handlers) GetReadiness(ctx context.Context, _ apigen.GetReadinessRequestObject) (apigen.GetReadinessResponseObject, error) {
	if err := h.api.Ready(ctx); err != nil {
		// Whatever it is, the answer to a probe is "not now".
		return nil, &flows.Error{Code: flows.CodeUnavailable, Message: "requests cannot be served yet", Err: err}
	}
	return apigen.GetReadiness200JSONResponse{Status: apigen.HealthStatusOk}, nil
}

// GetContract serves openapi.yaml.
func (h *handlers) GetContract(context.Context, apigen.GetContractRequestObject) (apigen.GetContractResponseObject, error) {
	return apigen.GetContract200ApplicationyamlResponse{Body: bytes.NewReader(h.contract.text), ContentLength: int64(len(h.contract.text))}, nil
}
