# Souk. `make demo` shows it working, `make test` proves it; each target installs what is missing by itself.
#
#   TORCH_INDEX=URL   package index for torch (PyTorch's CPU index spares a laptop CUDA's gigabytes)
#   PYTHON=python3.12 the interpreter that .venv is made with
#   WORKERS=3         parallel test processes

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
TORCH_VERSION := 2.13.0
TORCH_INDEX ?=
UV_VERSION := 0.13.8
WORKERS ?= 3
UP ?=

BIN := .venv/bin
INSTALLED := .venv/.installed
TOKENS := tests/unit/billing/contract/tokens
BENCHMARKS ?= overhead matching ledger fleet client verification lending isolation gas payouts solvency \
	gateway tunnels autoscale inference_checks
export OMP_NUM_THREADS ?= 1

.PHONY: help demo up test acceptance check bench lock openapi contracts format clean

help:
	@sed -n 's/^#   //p; s/^\([a-z]*\):.*## /\1\t/p' Makefile

demo: $(INSTALLED) ## the whole product on real input, checked, in seven minutes
	$(BIN)/python -m examples.demo

up: $(INSTALLED) ## a marketplace on this computer until Ctrl-C (UP="--port 8100 --data folder")
	$(BIN)/souk up $(UP)

test: $(INSTALLED) ## every test but the long stories, and one of those
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/acceptance
	$(BIN)/python -m pytest tests/acceptance/test_whole_path.py

acceptance: $(INSTALLED) ## the long stories: whole marketplaces, strangers' nodes, a network that breaks
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/acceptance --ignore tests/acceptance/test_whole_path.py

check: $(INSTALLED) ## format, lint, types, import rules, migrations, API snapshot
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.manage makemigrations --check --dry-run
	mkdir -p .cache
	$(BIN)/python -m tests.manage spectacular --validate --fail-on-warn --file .cache/openapi.yaml
	$(BIN)/python -m billing.chain.compiling --check
	$(BIN)/python -m billing.chain.compiling --check $(TOKENS) $(TOKENS)/built
	@diff -u docs/openapi.yaml .cache/openapi.yaml \
	  || { echo 'The API changed: look at the difference, then `make openapi` and commit docs/openapi.yaml.' >&2; exit 1; }

openapi: $(INSTALLED) ## write docs/openapi.yaml anew
	$(BIN)/python -m tests.manage spectacular --validate --fail-on-warn --file docs/openapi.yaml

contracts: $(INSTALLED) ## compile the contracts anew; then commit their build
	$(BIN)/python -m billing.chain.compiling
	$(BIN)/python -m billing.chain.compiling $(TOKENS) $(TOKENS)/built

format: $(INSTALLED) ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED) ## every benchmark; results go to benchmarks/results/
	for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m "benchmarks.$$name" --write; done
	$(BIN)/python -m benchmarks.figures

# torch is left out of the lock (it is pinned above): its index may be chosen, and each has its own hashes.
lock: $(INSTALLED) ## solve requirements.lock anew from pyproject.toml
	mkdir -p .cache
	echo 'torch ; python_version < "3"' > .cache/no-torch.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra server --extra agent --extra train --extra serve --extra chain --extra devchain --extra dev \
	  --override .cache/no-torch.txt pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra agent --constraint requirements.lock pyproject.toml -o provider_agent/packaging/requirements.lock

clean: ## remove what was installed and cached here
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(INSTALLED): requirements.lock pyproject.toml
	@command -v $(PYTHON) > /dev/null \
	  || { echo 'Souk needs Python 3.11 or newer, and $(PYTHON) is not installed.' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Souk needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1); set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null \
	  || { echo '$(PYTHON) lacks its venv module; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	mkdir -p .cache
	[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH_VERSION) \
	  $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $(INSTALLED)
