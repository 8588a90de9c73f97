# Souk. `make demo` shows it working, `make test` proves it; each target installs what is missing by itself.
#
#   TORCH_INDEX=URL   package index for torch (PyTorch's CPU index spares a laptop CUDA's gigabytes)
#   PYTHON=python3.12 the interpreter that .venv is made with
#   WORKERS=4         parallel test processes: two a core, as half of their time is waiting
#   T=tests/unit/...  of `make test`: only this, with any of pytest's arguments, such as T="FILE::NAME" or T="FILE -k WORD"

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
TORCH_VERSION := 2.13.0
TORCH_INDEX ?=
UV_VERSION := 0.13.8
WORKERS ?= 4
UP ?=
UNTIL ?=
T ?=
REPORT ?=

BIN := .venv/bin
INSTALLED := .venv/.installed
TOKENS := tests/unit/billing/contract/tokens
BENCHMARKS ?= overhead matching ledger fleet client verification lending isolation gas payouts challenge_windows solvency \
	slow_visitors gateway tunnels autoscale inference_checks
export OMP_NUM_THREADS ?= 1

# What `make test` leaves to other targets, each of which .ci/run runs. Three are whole folders: minutes of an EVM in
# Python, of torch that loads in each process of a training, and of agents that start, beat and are killed.
LEFT_OUT := docker or own_servers or escrow_model or money_model or anvil
EVM := tests/unit/billing/contract tests/integration/billing/chain tests/integration/jobs/escrow
RUNTIMES := tests/integration/runtimes tests/unit/runtimes
AGENT := tests/integration/provider_agent tests/contracts/fabric
# Each worker would look through all tests for those few with a container.
CONTAINERS := tests/contracts/executors tests/integration/tunnels
# Build the agent's environment seven times; left to `make acceptance`, which leaves the processors idle at times.
WHOLE_INSTALL := tests/integration/portal/test_install_whole.py tests/integration/portal/test_remote_install.py
FUZZ := tests/integration/config/fuzz
FUZZ_EXAMPLES ?= 100
LANE_WORKERS ?= 2
ESCROW_STEPS ?= 2000
# With fewer steps the model does not reach all of its rarest rules.
MONEY_STEPS ?= 2000

CHECKS := check-types check-style check-imports check-migrations check-api check-contracts check-repository
CHECKS_AT_ONCE ?= 2
SOAK_SEEDS ?= 1 2 3 4 5
SOAK_MONEY_STEPS ?= 10000
SOAK_ESCROW_STEPS ?= 20000
SOAK_SCHEDULES ?= 500
# The more a chain has seen, the longer each schedule takes.
SOAK_SCHEDULES_A_CHAIN ?= 50
SOAK_CHECKPOINT_KILLS ?= 200
SOAK_REDIS_SCHEDULES ?= 50
SOAK_KILL_SCHEDULES ?= 50
SOAK_LINE_BYTES ?= 10000000000
SOAK_FUZZ_EXAMPLES ?= 10000
SOAK_EXAMPLES_TIMES ?= 20
SOAK_TEST_SECONDS ?= 7200
# Slow variants of what other tests show: left out elsewhere by tests/conftest.py.
SOAK_ONLY := SOUK_SOAK=1 $(BIN)/python -m pytest -m soak

.PHONY: help demo up test evm runtimes agent gpu containers embedded fuzz anvil models escrow-model money-model coverage acceptance mutants soak slowest check $(CHECKS) bench lock openapi contracts format clean

help:
	@sed -n 's/^#   //p; s/^\([a-z]*\):.*## /\1\t/p' Makefile

demo: $(INSTALLED) ## the whole product on real input, checked, in seven minutes
	$(BIN)/python -m examples.demo $(if $(UNTIL),--until $(UNTIL))

up: $(INSTALLED) ## a marketplace on this computer until Ctrl-C (UP="--port 8100 --data folder")
	$(BIN)/souk up $(UP)

test: $(INSTALLED) ## every test but those of the nine targets below; one file: T=tests/unit/jobs/spec/test_spec.py
ifneq ($(strip $(T)),)
	$(BIN)/python -m pytest $(T)
else
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/acceptance \
	  $(addprefix --ignore ,$(WHOLE_INSTALL) $(FUZZ) $(EVM) $(RUNTIMES) $(AGENT)) -m 'not ($(LEFT_OUT))' \
	  $(REPORT)
endif

evm: $(INSTALLED) ## the contract, its events, and jobs paid from a wallet, on an EVM in Python
	$(BIN)/python -m pytest -n $(LANE_WORKERS) --dist loadfile -m 'not ($(LEFT_OUT))' $(EVM) $(REPORT)

runtimes: $(INSTALLED) ## training and serving programs: ranks, kills, checkpoints, engines
	$(BIN)/python -m pytest -n $(LANE_WORKERS) --dist loadfile -m 'not ($(LEFT_OUT))' $(RUNTIMES) $(REPORT)

agent: $(INSTALLED) ## agents that enrol, work, lose the network, are killed and are updated; links that are measured
	$(BIN)/python -m pytest -n $(LANE_WORKERS) --dist loadfile -m 'not ($(LEFT_OUT))' $(AGENT) $(REPORT)

gpu: $(INSTALLED) ## what needs an NVIDIA GPU: a marketplace with a node that has one, programs on it, its driver's figures
	$(BIN)/python -m pytest -m gpu tests/gpu tests/integration/provider_agent/devices tests/unit/provider_agent/devices

containers: $(INSTALLED) ## jobs in containers, gangs and their networks; as root, on a container engine that the tests start
	$(BIN)/python -m tests.contracts.executors.base_image
	$(BIN)/python -m pytest -n $(LANE_WORKERS) --dist loadfile -m docker $(CONTAINERS)

embedded: $(INSTALLED) ## tests that start, kill and restart `souk up` on its own PostgreSQL and Redis
	$(BIN)/python -m pytest tests/integration/embedded

fuzz: $(INSTALLED) ## every operation of the public, agents' and gateways' APIs, asked what its schema allows and forbids, FUZZ_EXAMPLES times
	SOUK_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest -n $(WORKERS) $(FUZZ)

anvil: $(INSTALLED) ## transactions and reorganisations on a node of somebody else (CONTRIBUTING.md says how to get it)
	$(BIN)/python -m pytest -n $(LANE_WORKERS) --dist loadfile -m anvil tests/chain

models: escrow-model money-model ## thousands of steps of the escrow, and of all of billing, each against a model of it

escrow-model: $(INSTALLED)
	SOUK_MONEY_STEPS=$(ESCROW_STEPS) $(BIN)/python -m pytest -s -m escrow_model tests/unit/billing/contract/test_model.py

money-model: $(INSTALLED)
	SOUK_MONEY_STEPS=$(MONEY_STEPS) $(BIN)/python -m pytest -s -m money_model tests/integration/billing/whole

acceptance: $(INSTALLED) ## whole marketplaces and installations, nodes of other organisations, a network that fails
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests/acceptance $(WHOLE_INSTALL)

# Takes twice as long as those tests. tests/coverage_table.py compares two of its tables.
coverage: $(INSTALLED) ## which lines and branches all tests but acceptance and containers run: benchmarks/results/coverage.json
	rm -rf .cache/coverage
	mkdir -p .cache/coverage
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/acceptance -m 'not docker' \
	  --cov --cov-report=
	$(BIN)/coverage combine --append --quiet || true  # of processes that outlived pytest, mostly none
	$(BIN)/coverage json --quiet -o .cache/coverage/report.json
	$(BIN)/python -m tests.coverage_table .cache/coverage/report.json --write benchmarks/results/coverage.json

# MUTANTS="holds settlement --sample 20" tries a part; what was tried is kept, and the next run goes on from there.
mutants: $(INSTALLED) ## small mistakes in what guards money and access, each of which a test has to notice (hours)
	$(BIN)/python -m venv .cache/mutation/venv
	.cache/mutation/venv/bin/pip install --quiet --require-hashes -r tests/mutation/requirements.txt
	.cache/mutation/venv/bin/python -m tests.mutation.run $(MUTANTS)

# What a commit has no time for: every model, schedule and property with more steps and other seeds. A failure names its seed.
soak: $(INSTALLED) ## hours: the models with five seeds, 500 schedules of reorganisations, 200 kills in saves, 50 jobs over emptied Redis, 50 gangs whose nodes are killed and hang, ten gigabytes over a line that breaks, variants of slow tests, 10,000 requests an operation, properties at twenty times the examples, and the mutants
	SOUK_MONEY_STEPS=$(SOAK_ESCROW_STEPS) $(BIN)/python -m pytest -s tests -m escrow_model
	for seed in $(SOAK_SEEDS); do \
	  echo "== seed $$seed"; \
	  SOUK_MONEY_SEED=$$seed SOUK_MONEY_STEPS=$(SOAK_MONEY_STEPS) $(BIN)/python -m pytest -s tests -m money_model; \
	done
	for first in $$(seq 1 $(SOAK_SCHEDULES_A_CHAIN) $(SOAK_SCHEDULES)); do \
	  echo "== reorganisations from seed $$first"; \
	  SOUK_REORG_SEED=$$first SOUK_REORG_SCHEDULES=$(SOAK_SCHEDULES_A_CHAIN) \
	    $(BIN)/python -m pytest -s tests/chain/test_schedules.py; \
	done
	SOUK_CHECKPOINT_KILLS=$(SOAK_CHECKPOINT_KILLS) $(BIN)/python -m pytest -s tests/integration/runtimes/train/test_kills.py
	SOUK_SOAK=1 SOUK_REDIS_SCHEDULES=$(SOAK_REDIS_SCHEDULES) $(BIN)/python -m pytest -s tests/acceptance/test_emptied_redis.py
	SOUK_SOAK=1 SOUK_KILL_SCHEDULES=$(SOAK_KILL_SCHEDULES) $(BIN)/python -m pytest -s tests/acceptance/test_kill_schedules.py
	SOUK_LINE_BYTES=$(SOAK_LINE_BYTES) $(BIN)/python -m pytest -s tests/acceptance/test_behind_nat.py \
	  -k 'join_from or large_output'
	$(SOAK_ONLY) tests --ignore tests/acceptance
	SOUK_FUZZ_EXAMPLES=$(SOAK_FUZZ_EXAMPLES) $(BIN)/python -m pytest -n $(WORKERS) $(FUZZ) --timeout $(SOAK_TEST_SECONDS)
	SOUK_EXAMPLES_TIMES=$(SOAK_EXAMPLES_TIMES) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
	  -m 'hypothesis and not escrow_model and not money_model' --timeout $(SOAK_TEST_SECONDS)
	$(MAKE) mutants
	$(SOAK_ONLY) $(addprefix tests/acceptance/test_,updates.py behind_nat.py checks.py generations.py nodes.py)

slowest: $(INSTALLED) ## make test, evm, runtimes and agent, then rewrite the table of the fifty slowest tests in CONTRIBUTING.md
	mkdir -p .cache
	for part in test evm runtimes agent; do $(MAKE) $$part REPORT=--junit-xml=.cache/junit-$$part.xml; done
	$(BIN)/python -m tests.slowest .cache/junit-*.xml

# mypy takes as long as all others together, so these run beside it. Each prints whole, when it is done.
check: $(INSTALLED) ## format, lint, types, import rules, migrations, API snapshot, words and pages
	@mkdir -p .cache
	@$(MAKE) --no-print-directory --jobs $(CHECKS_AT_ONCE) --output-sync=target $(CHECKS)

check-types: $(INSTALLED)
	$(BIN)/mypy

check-style: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

check-imports: $(INSTALLED)
	$(BIN)/lint-imports --no-logo

check-migrations: $(INSTALLED)
	$(BIN)/python -m tests.manage makemigrations --check --dry-run

check-api: $(INSTALLED)
	$(BIN)/python -m tests.manage spectacular --validate --fail-on-warn --file .cache/openapi.yaml
	@diff -u docs/openapi.yaml .cache/openapi.yaml \
	  || { echo 'The API changed: look at the difference, then `make openapi` and commit docs/openapi.yaml.' >&2; exit 1; }

check-contracts: $(INSTALLED)
	$(BIN)/python -m billing.chain.contract.compiling --check
	$(BIN)/python -m billing.chain.contract.compiling --check $(TOKENS) $(TOKENS)/built

# Part of `make test` too; here a word that was given up is said in two minutes instead of twelve.
check-repository: $(INSTALLED)
	$(BIN)/python -m pytest -n $(CHECKS_AT_ONCE) tests/unit/repository tests/integration/repository

openapi: $(INSTALLED) ## write docs/openapi.yaml anew
	$(BIN)/python -m tests.manage spectacular --validate --fail-on-warn --file docs/openapi.yaml

contracts: $(INSTALLED) ## compile the contracts anew; then commit their build
	$(BIN)/python -m billing.chain.contract.compiling
	$(BIN)/python -m billing.chain.contract.compiling $(TOKENS) $(TOKENS)/built

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
