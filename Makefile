# Two commands: `make train` trains an agent on this machine, `make test` runs the tests. Both set up .venv first.

PYTHON ?= python3
JOB ?= manifests/examples/pong-vtrace.yaml
ARGS ?=
TESTS ?= tests
VENV := .venv
READY := $(VENV)/.ready
RLJOB := $(VENV)/bin/rljob

.PHONY: train test test-cluster lint generate clean help

help: ## Show the commands.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

train: $(READY) ## Train JOB (default: the Pong quickstart). ARGS="--set spec.path=value ..." is passed on.
	$(RLJOB) run $(JOB) $(ARGS)

test: $(READY) ## Run the tests. TESTS=tests/unit narrows them down.
	$(VENV)/bin/python -m pytest $(TESTS)

test-cluster: $(READY) ## Run the tests against a real API server, from the programs in the folder KUBEBUILDER_ASSETS.
	@test -n "$$KUBEBUILDER_ASSETS" || \
	  { echo "KUBEBUILDER_ASSETS is not set; docs/testing-on-kubernetes.md says where its programs come from"; exit 1; }
	$(VENV)/bin/python -m pytest tests/cluster

lint: $(READY) ## Check style and types.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

generate: $(READY) ## Write the CRD and the API reference from the types in workers/rljob/api.
	$(VENV)/bin/python -m rljob.api.crd

clean: ## Remove the virtual environment.
	rm -rf $(VENV)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rljob needs Python 3.11 or newer; this is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "this Python lacks its venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@
