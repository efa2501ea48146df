# mirrorflow. `make` prints this help; every target works from a fresh clone.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOLS := bin/tools
CACHE := $(if $(MIRRORFLOW_CACHE),$(MIRRORFLOW_CACHE),$(HOME)/.cache/mirrorflow)
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X github.com/mirrorflow/mirrorflow/internal/obs.Version=$(VERSION)
# Packages run two at a time: the suites with brokers need the cores.
TESTFLAGS ?= -timeout 20m -p 2
KAFKA_VERSIONS := 3.9 4.3

.PHONY: help
help: ## Print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

.PHONY: demo
demo: deps build ## Copy real topics from Kafka 3.9 to Kafka 4.3 through the API (KEEP=1 leaves it running)
	deploy/dev/demo.sh

.PHONY: run
run: deps-postgres build ## Postgres, API (no authentication, loopback) and one worker in the foreground
	deploy/dev/run.sh

.PHONY: build
build: ## Build the binaries into bin/
	go build -ldflags '$(LDFLAGS)' -o bin/mirrorflow-api ./cmd/api
	go build -ldflags '$(LDFLAGS)' -o bin/mirrorflow-worker ./cmd/worker
	go build -ldflags '$(LDFLAGS)' -o bin/mirrorctl ./cmd/mirrorctl
	go build -o bin/mirrorflow-dev ./cmd/mirrorflow-dev

.PHONY: test
test: deps $(TOOLS)/gotestsum ## Run every test: units, Postgres, real brokers, the whole service (about 10 minutes)
	$(TOOLS)/gotestsum --format pkgname-and-test-fails -- $(TESTFLAGS) ./...

.PHONY: test-short
test-short: $(TOOLS)/gotestsum ## Only the tests that need neither brokers nor Postgres nor a JVM
	$(TOOLS)/gotestsum --format pkgname-and-test-fails -- $(TESTFLAGS) ./internal/engine/mm2/... ./internal/engine/report/... ./internal/archtest/... ./internal/http/... ./internal/config/... ./internal/lifecycle/... ./internal/secrets/...

.PHONY: race
race: deps $(TOOLS)/gotestsum ## Run the concurrent packages' tests with the race detector
	$(TOOLS)/gotestsum --format pkgname-and-test-fails -- -race $(TESTFLAGS) $(RACE_PACKAGES)

RACE_PACKAGES := ./internal/worker/... ./internal/engine/... ./internal/kafka/... ./internal/store/... ./internal/http/... ./internal/lifecycle/...

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (default 10s)
	@for pkg in $$(grep -rlE '^func Fuzz' --include='*_test.go' internal | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | sed 's/^func //' | sort -u); do \
	    echo "fuzz $$pkg $$f"; go test ./$$pkg -run '^$$' -fuzz "^$$f\$$" -fuzztime $${FUZZTIME:-10s} -fuzzminimizetime 10x; \
	  done; done

.PHONY: bench bench-all bench-quick bench-report
bench: deps bin/mirrorbench ## Compare with MirrorMaker 2: six cases, some hours (BENCH_CASES, BENCH_ENGINES; FORCE=1 runs cases again)
	bin/mirrorbench run
bench-all: deps bin/mirrorbench ## The full matrix of the comparison; goes on where it was ended
	BENCH_CASES="$${BENCH_CASES:-all}" bin/mirrorbench run
bench-quick: deps bin/mirrorbench ## One case against tuned MirrorMaker 2, in less than 5 minutes; prints the ratios
	bin/mirrorbench quick
bench-report: bin/mirrorbench ## Make bench/results/README.md anew
	bin/mirrorbench report

.PHONY: bench-go
bench-go: $(TOOLS)/benchstat ## Go benchmarks of the data path against the committed baseline; fails only on allocations
	bench/go.sh

.PHONY: bin/mirrorbench
bin/mirrorbench: build
	go build -o $@ ./bench/mirrorbench

.PHONY: lint
lint: $(TOOLS)/golangci-lint $(TOOLS)/gofumpt ## Format check and linters, import rules among them
	@out=$$($(TOOLS)/gofumpt -l $$(git ls-files '*.go' | grep -vE 'apigen/|/client/.*gen|dbsqlc/')); \
	  if [ -n "$$out" ]; then echo "not formatted (run make fmt):"; echo "$$out"; exit 1; fi
	$(TOOLS)/golangci-lint run ./...

.PHONY: fmt
fmt: $(TOOLS)/gofumpt ## Format the Go code
	$(TOOLS)/gofumpt -w $$(git ls-files '*.go' | grep -vE 'apigen/|/client/.*gen|dbsqlc/')

.PHONY: generate
generate: $(TOOLS)/oapi-codegen $(TOOLS)/sqlc ## Generate code from openapi.yaml and the SQL
	PATH="$(CURDIR)/$(TOOLS):$$PATH" go generate ./internal/http/...
	$(TOOLS)/sqlc generate

.PHONY: drift
drift: generate ## Fail when committed generated code differs from what the generators make
	@git diff --exit-code --stat -- internal/http internal/store || { echo "generated code is stale: run make generate and commit"; exit 1; }

.PHONY: check
check: ## What CI does: tools, formatting, linters, drift, build, all tests, race detector
	$(MAKE) deps
	$(MAKE) lint
	$(MAKE) drift
	go mod verify
	$(MAKE) build
	$(MAKE) bench-go
	$(MAKE) test
	$(MAKE) race

.PHONY: deps
deps: deps-postgres deps-kafka ## Find or install Postgres, fetch the Kafka jars (cached)

.PHONY: deps-postgres
deps-postgres:
	@deploy/postgres/ensure.sh >/dev/null

.PHONY: deps-kafka
deps-kafka:
	@deploy/kafka/fetch.sh

.PHONY: clean
clean: ## Remove what was built here (the data and keys of make run, in .mirrorflow, stay)
	rm -rf bin

# Tools have a module of their own, so that their dependencies are not the product's.
$(TOOLS)/oapi-codegen: tools/go.mod tools/go.sum
	go build -modfile=tools/go.mod -o $@ github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
$(TOOLS)/sqlc: tools/go.mod tools/go.sum
	go build -modfile=tools/go.mod -o $@ github.com/sqlc-dev/sqlc/cmd/sqlc
$(TOOLS)/golangci-lint: tools/go.mod tools/go.sum
	go build -modfile=tools/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/gotestsum: tools/go.mod tools/go.sum
	go build -modfile=tools/go.mod -o $@ gotest.tools/gotestsum
$(TOOLS)/benchstat: tools/go.mod tools/go.sum
	go build -modfile=tools/go.mod -o $@ golang.org/x/perf/cmd/benchstat
$(TOOLS)/gofumpt: tools/go.mod tools/go.sum
	go build -modfile=tools/go.mod -o $@ mvdan.cc/gofumpt
