# `make` prints what there is. Tests need no settings: `make test` starts the services that they use.
SHELL := /bin/sh
.DEFAULT_GOAL := help

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0
VULNDB     ?= https://vuln.go.dev
SERVICES    = bin/services
# Run all tests with TESTFLAGS=-run=Name or PACKAGES=./claim to narrow them down.
PACKAGES   ?= ./...
TESTFLAGS  ?=
# What `make chaos` does: the same seed makes the same faults; 0 takes any.
SEED       ?= 0
FOR        ?= 60s
BROKERS    ?= 1
# How long `make soak` is.
SOAK       ?= 10m
FUZZTIME   ?= 30s

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: cc lint $(SERVICES) ## lint, then every test against real services with the race detector, which it starts and stops
	$(SERVICES) run -- go test -race -count=1 -timeout 30m $(TESTFLAGS) $(PACKAGES)

test-long: cc $(SERVICES) ## the same with a million rows and outages of three minutes
	RELAY_TEST_LONG=1 $(SERVICES) run -- go test -race -count=1 -timeout 60m $(TESTFLAGS) $(PACKAGES)

chaos: cc ## relays on real servers that break at random for FOR=60s; prints the seed, SEED=7 repeats a run
	go test -race -count=1 -v -timeout 30m -run '^TestChaos$$' ./internal/chaos -args -seed=$(SEED) -for=$(FOR) -brokers=$(BROKERS)

soak: cc ## relays at a steady rate with faults for SOAK=10m: memory, connections, tables and statements stay as they were
	go test -count=1 -v -timeout 60m -run '^TestSoak$$' ./internal/chaos -args -seed=$(SEED) -soak=$(SOAK)

mutants: $(SERVICES) ## break each promise by an edit and see a test fail; TESTFLAGS=-run=Kafka for some
	$(SERVICES) run -- go run ./internal/mutants $(TESTFLAGS)

test-short: ## the tests that need no service
	go test -short $(TESTFLAGS) $(PACKAGES)

# Go's fuzzer takes one target at a time. What it finds lands in testdata/fuzz beside the target, where `make test` runs it.
fuzz: ## every fuzz target for FUZZTIME (30s); FUZZ=Name narrows them down
	@grep -rnE '^func Fuzz[A-Za-z0-9]*$(FUZZ)' --include='*_test.go' . | sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9]*).*|\1 \2|' | sort | while read -r folder target; do \
	  echo "$$folder $$target"; \
	  go test -short -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$folder </dev/null || exit 1; \
	done

services: $(SERVICES) ## start the services and keep them; prints the exports for a shell
	@$(SERVICES) up

services-down: $(SERVICES) ## stop what `make services` started
	@$(SERVICES) down

bench: $(SERVICES) ## the benchmarks, each beside its floor
	$(SERVICES) run --optimize -- go test -run '^$$' -bench . -timeout 30m $(TESTFLAGS) $(PACKAGES)

lint: ## gofmt, go vet, staticcheck
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "not gofmt-ed:"; echo "$$out"; exit 1; }
	go vet $(PACKAGES)
	go run $(STATICCHECK) $(PACKAGES)

# Its exit code 3 means that it has found something; any other that it couldn't look.
vuln: ## known vulnerabilities in the code that relay calls; needs VULNDB=https://vuln.go.dev
	@GOBIN=$(CURDIR)/bin go install $(GOVULNCHECK)
	@bin/govulncheck -db $(VULNDB) $(PACKAGES); code=$$?; case $$code in \
	  0) ;; \
	  3) echo "make vuln: the vulnerabilities above are in code that relay calls"; exit 3 ;; \
	  *) echo "make vuln: nothing was checked: is $(VULNDB) reachable?"; exit 1 ;; esac

build: ## a static binary, bin/relay
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X github.com/jobrelay/relay/internal/version.number=$(VERSION)' -o bin/relay ./cmd/relay

# The command itself decides what is up to date; building it is quick when nothing has changed.
$(SERVICES): FORCE
	@go build -o $@ ./internal/services/cmd/services

# The race detector needs a C compiler.
cc:
	@command -v "$$(go env CC)" >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get -q update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install build-essential >/dev/null; \
	  else echo "go test -race needs a C compiler: install gcc (Debian: build-essential)"; exit 1; fi; }

.PHONY: help test test-long chaos soak test-short fuzz mutants services services-down bench lint vuln build cc FORCE
FORCE:
