# Two commands: `make train` trains an agent on this machine, `make test` runs the tests. Both set up .venv first, each with what
# it needs: .ready marks what rljob trains with, .ready-test what its tests need beside, .ready-dev the checkers of style and types.

PYTHON ?= python3
JOB ?= manifests/examples/pong-vtrace.yaml
ARGS ?=
TESTS ?= tests
# Half of the processes begin with tests that compute, half with those that wait; a file that is named runs in one process.
WORKERS ?= $(if $(findstring .py,$(TESTS)),0,$(shell $(PYTHON) -c 'import os; print(min(8, 2 * len(os.sched_getaffinity(0))))'))
SECONDS ?= 300
SEED ?=
VENV := .venv
READY := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test
READY_DEV := $(VENV)/.ready-dev
READY_RELEASE := $(VENV)/.ready-release
PIP_INSTALL := $(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt
RLJOB := $(VENV)/bin/rljob

.PHONY: train test test-all fuzz search mutate test-cluster lint generate site release clean help

help: ## Show the commands.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

train: $(READY) ## Train JOB (default: the Pong quickstart). ARGS="--set spec.path=value ..." is passed on.
	$(RLJOB) run $(JOB) $(ARGS)

# With PYTHONDONTWRITEBYTECODE, which images of CI set, each process would compile all tests again: 6 seconds.
test: export PYTHONDONTWRITEBYTECODE =
test: $(READY_TEST) ## Run the tests, unit tests first. TESTS=tests/unit narrows them down; WORKERS=0: one after the other.
	$(VENV)/bin/python -m pytest -n $(WORKERS) $(if $(findstring .py,$(TESTS)),,-m "not long") $(TESTS)

test-all: export PYTHONDONTWRITEBYTECODE =
test-all: $(READY_TEST) ## Run what `make test` leaves out of folders, too: whole runs that take long.
	$(VENV)/bin/python -m pytest -n $(WORKERS) $(TESTS)

fuzz: $(READY_TEST) ## Look for what fixed draws miss: every randomised test with fresh ones for SECONDS=300; TESTS narrows, SEED repeats.
	$(VENV)/bin/python tests/fuzz.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(TESTS)

search: $(READY_TEST) ## Search what may happen to small jobs, breadth first, for SECONDS=300 in two processes.
	$(VENV)/bin/python -m tests.search --seconds $(SECONDS)

mutate: $(READY_DEV) ## Change one line of the code 200 times and tell which changes no test notices. ARGS="--seed 2 --rooms workers/rljob/wire".
	$(VENV)/bin/python -m tests.mutate $(ARGS)

test-cluster: $(READY_TEST) ## Run the tests against a real API server, from the programs in the folder KUBEBUILDER_ASSETS.
	@test -n "$$KUBEBUILDER_ASSETS" || \
	  { echo "KUBEBUILDER_ASSETS is not set; docs/testing-on-kubernetes.md says where its programs come from"; exit 1; }
	$(VENV)/bin/python -m pytest tests/cluster

lint: $(READY_DEV) ## Check style and types.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

generate: $(READY) ## Write what is made from the code: CRD, references, the chart's rules and schema, and of the chart install.yaml.
	$(VENV)/bin/python -m rljob.api.generate
	$(VENV)/bin/python -m rljob_operator.generate

site: $(READY_RELEASE) ## Build the site into dist/site; a link that leads nowhere is an error.
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict

release: $(READY_RELEASE) ## Make everything of a release in dist/ and try it; RELEASE.md says what comes then. REHEARSAL=1, IMAGES=.
	REHEARSAL=$(REHEARSAL) $(if $(filter undefined,$(origin IMAGES)),,IMAGES="$(IMAGES)") .ci/release

clean: ## Remove the virtual environment.
	rm -rf $(VENV)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rljob needs Python 3.11 or newer; this is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "this Python lacks its venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[worker,box2d,mujoco]'
	@touch $@

$(READY_TEST): $(READY)
	$(PIP_INSTALL) -e '.[test]'
	@touch $@

$(READY_DEV): $(READY_TEST)
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(READY_RELEASE): $(READY)
	$(PIP_INSTALL) -e '.[release]'
	@touch $@
