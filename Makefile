# Needs Python 3.11 or newer and make; everything else comes from requirements.lock into .venv.
# `make` alone prints what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed.stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup node demo demo-chaos test test-fast prove simulate lint types contracts bench lock clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  ARGS=... is handed on: make demo ARGS=--json"

setup: $(STAMP) ## install everything into .venv, from the lock; nothing to do the next time

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Backstop needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)."; \
	  echo "Name another one: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "This Python cannot make virtual environments (on Debian: apt install python3-venv)."; exit 1; }
	@echo "setting up $(VENV): about a minute, once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable . >$(VENV)/install.log 2>&1 || { \
	  cat $(VENV)/install.log; exit 1; }
	@touch $@

NODE := tests/publishers/node
NODE_STAMP := $(NODE)/node_modules/installed.stamp
NODE_ENOUGH := node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null

# Only the test of a publisher in another language needs it; without Node that test says so and is skipped.
node: ## the packages of the Node publisher, from its lock; nothing to do without Node 20 and npm
	@if ! $(NODE_ENOUGH) || ! command -v npm >/dev/null; then \
	  echo "Node 20 or newer and npm are not on this machine: the Node publisher is not tested"; \
	elif [ ! -e $(NODE_STAMP) ] || [ $(NODE)/package-lock.json -nt $(NODE_STAMP) ]; then \
	  (cd $(NODE) && npm ci --loglevel=error --no-progress >/dev/null) && touch $(NODE_STAMP); fi

demo: setup ## real Kafka and Postgres, over 200 intents, every outcome, four proofs
	@$(BIN)/backstop demo $(ARGS)

demo-chaos: setup ## the same while every part of ours is killed at random
	@$(BIN)/backstop demo --chaos $(ARGS)

# Two files at a time, each half with servers of its own; what has deadlines of seconds runs alone: the demo, and the
# stories in real time.
test: lint types contracts node ## style, types, import contracts, then the tests on the real broker and database
	@$(BIN)/pytest --numprocesses 2 --dist loadfile -m "not proof" --ignore tests/acceptance/test_demo.py $(ARGS)
	@$(BIN)/pytest tests/acceptance/test_demo.py $(ARGS)

prove: setup ## what takes longer: the worlds, planted bugs, crashes at every boundary, floods
	@$(BIN)/python -m tests.simulation --seed $(SEED) --seeds 300 --jobs 2
	@$(BIN)/pytest --numprocesses 2 --dist loadfile -m proof --ignore tests/acceptance/test_scenarios_real.py $(ARGS)
	@$(BIN)/pytest tests/acceptance/test_scenarios_real.py $(ARGS)

SEED := $(shell printf '%d' 0x$$(git rev-parse --short=6 HEAD 2>/dev/null || echo 1) 2>/dev/null || echo 1)

simulate: setup ## 300 worlds that break everything, from the commit's own number on
	@$(BIN)/python -m tests.simulation --seed $(SEED) --seeds 300 --jobs 2 $(ARGS)

test-fast: lint types contracts ## the same without the tests that start servers
	@$(BIN)/pytest --numprocesses 2 tests/unit tests/property tests/contract tests/tidy $(ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

contracts: setup
	@$(BIN)/lint-imports

bench: setup ## records/s side by side with stock Faust and a plain loop; takes minutes
	@$(BIN)/python -m tests.benchmarks $(ARGS)

lock: setup ## resolve again and write requirements.lock and the broker's jgo.lock.toml
	@$(BIN)/pip-compile --quiet --upgrade --extra local --extra aws --extra dev --generate-hashes --allow-unsafe \
	  --strip-extras --no-header --annotation-style=line --no-build-isolation \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file $(VENV)/requirements.body pyproject.toml
	@{ sed -n '/^#/!q;p' requirements.lock; cat $(VENV)/requirements.body; } > $(VENV)/requirements.fresh
	@mv $(VENV)/requirements.fresh requirements.lock
	@$(BIN)/python -m compose.local.jars

clean: ## delete caches and the data folder .backstop, not .venv
	@if [ -x $(BIN)/python ]; then $(BIN)/python -c 'import sys; from compose.local.stack import running; \
	  found = running(); sys.exit(f"The stack runs: end pid {found.owner_pid} first." if found else 0)'; fi
	@rm -rf .backstop build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
