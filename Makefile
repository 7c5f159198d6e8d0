# Bare `make` lists the targets. Each does its own set-up in .venv; only Python >= 3.11 is needed.
PYTHON ?= python3
BIN := .venv/bin
# Python keeps the bytecode of what it imports, a third of the packages' files, even if the environment disables it.
export PYTHONDONTWRITEBYTECODE :=
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
.DEFAULT_GOAL := help
.PHONY: help run test test-all test-fleet test-interop lint javascript docs demo agent bench openhands vendor pictures

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# Users of sandboxes cannot write here, and would compile the agent at each start, which is two thirds of the start.
COMPILED = $(BIN)/python -c 'import reference_agent.__main__, runtimes.launch'

.venv/run: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@echo 'Setting up .venv, once. This takes a minute or two.'
	$(PYTHON) -m venv .venv
	$(INSTALL) -r requirements.txt
	@touch $@

.venv/dev: .venv/run requirements/dev.txt
	@echo 'Adding the packages of the tests to .venv, once. This takes a minute or two.'
	$(INSTALL) -r requirements/dev.txt
	@touch $@

# Ctrl-C also ends the sandboxes, because a later server may not adopt them. STOP_SANDBOXES=0 leaves them running.
run: export STOP_SANDBOXES ?= 1
run: .venv/run ## start the server on http://127.0.0.1:8000
	@$(COMPILED)
	$(BIN)/gunicorn -c gunicorn.conf.py 'app:create_app()'

SUITE = $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --ignore tests/interop

# The processes of the tests share the bytecode of the test files.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv/dev ## run the quick tests, before each commit: under 5 minutes
	$(SUITE) --group quick

test-all: .venv/dev ## run the other tests, group by group, or one group: GROUP=process, stores, faults, cluster, browser, docker, kubernetes, interop
	$(BIN)/python -m tests.groups $(GROUP)

test-fleet: export FAILOVERS ?= 50
test-fleet: export WRITES ?= 10000
test-fleet: .venv/dev ## fail over 50 times, with 10,000 writes each: FAILOVERS=… WRITES=…
	$(BIN)/python -m pytest --timeout 0 tests/test_failover.py tests/test_cluster_failover.py

test-interop: .venv/dev ## run the published OpenHands SDK and agent server against this one; INTEROP_LONG=1 runs longer
	@tests/interop/run.sh

lint: .venv/dev javascript ## check style and types, including the JavaScript if node and npm are installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

javascript: ## check the JavaScript and run its tests, if node and npm are installed
	@.ci/javascript

docs: .venv/dev ## generate the OpenAPI document and the table of settings from the code
	$(BIN)/python -m docs.script_calls > .calls.py && mv .calls.py store/scripts/calls.py
	$(BIN)/python -m docs.make

demo: .venv/run ## load a recorded conversation into a running server and decide its pending action
	$(BIN)/python docs/examples/demo.py

agent: .venv/run ## install a published agent beside the server: make agent NAME=claude; without NAME list them; ID=… runs the echo agent
	$(if $(ID),,@$(INSTALL) -r requirements/acp.txt)
	@$(if $(ID),$(BIN)/python docs/examples/echo_agent.py $(ID),$(BIN)/python -m admin agent $(NAME) $(if $(MODEL),--model '$(MODEL)'))

openhands: ## set up the published OpenHands agent server (Python >= 3.12), and write openhands.toml, the specs that run it
	@$(PYTHON) docs/examples/openhands_agent.py

bench: .venv/dev ## measure throughput, print ratios, and write them to docs/performance.md and bench/results
	@$(COMPILED)
	$(BIN)/python -m bench

vendor: .venv/run ## fetch the files of other projects that the pages load, listed in docs/vendor.py, from npm
	$(BIN)/python -m docs.vendor

pictures: .venv/dev ## make contact sheets of all console views in .pictures/; VIEW=… makes one, VIEW=docs those of the documentation
	$(BIN)/python -m tests.console.pictures $(VIEW)
