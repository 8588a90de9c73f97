"""Each import rule sees its violation: one is planted in a copy of the house, and the rule is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILDINGS = ("marketplace", "jobs", "billing", "provider_agent", "runtimes")

# rule -> (file, the line planted in it); several for a rule that says several things
VIOLATIONS = [
    ("Imports point down only", "marketplace/foundation/clock.py", "import marketplace.accounts.models"),
    ("Imports point down only", "marketplace/accounts/models.py", "import marketplace.nodes.models"),
    ("Imports point down only", "marketplace/nodes/models/node.py", "import billing.ledger"),
    ("Imports point down only", "billing/ledger.py", "import marketplace.nodes.models"),
    ("Imports point down only", "billing/ledger.py", "from jobs import states"),
    ("Imports point down only", "jobs/lifecycle.py", "import marketplace.config.settings"),
    ("Imports point down only", "marketplace/portal/views.py", "import marketplace.config.checks"),
    ("The server knows of the agent only its protocol", "jobs/lifecycle.py", "import provider_agent.keys"),
    ("The server knows of the agent only its protocol", "billing/metering.py", "from provider_agent import receipts"),
    ("Everybody knows of the runtimes only their contract", "jobs/lifecycle.py", "import runtimes.train"),
    ("Everybody knows of the runtimes only their contract", "provider_agent/sync.py", "import runtimes.probe"),
    ("The agent stands alone", "provider_agent/sync.py", "import jobs.wire"),
    ("The agent stands alone", "provider_agent/protocol/__init__.py", "import django"),
    ("The runtimes stand alone", "runtimes/contract.py", "import provider_agent.protocol"),
    ("The runtimes stand alone", "runtimes/contract.py", "import pydantic"),
    ("The customer's side needs no server", "jobs/wire/job.py", "import django.db"),
    ("The customer's side needs no server", "jobs/client/__init__.py", "import jobs.models"),
    ("The customer's side needs no server", "jobs/client/__init__.py", "import billing.money"),
    ("The gateway has no database", "jobs/gateway/upstream.py", "import django.db"),
    ("The gateway has no database", "jobs/gateway/table.py", "import jobs.models"),
    ("Stripe has one door", "billing/settlement.py", "import stripe"),
    ("web3 has one door", "billing/settlement.py", "import web3"),
    ("paramiko has its doors", "provider_agent/sync.py", "import paramiko"),
    ("Docker has one door", "provider_agent/executors/process.py", "import docker"),
    ("S3 has one door", "jobs/artifacts/local.py", "import boto3"),
    ("S3 has one door", "jobs/lifecycle.py", "import botocore.exceptions"),
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("house")
    for building in BUILDINGS:
        shutil.copytree(
            ROOT / building,
            copy / building,
            ignore=lambda folder, names: {
                name for name in names if not (name.endswith(".py") or (Path(folder) / name).is_dir())
            },
        )
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(house: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", *arguments]
    return subprocess.run(command, cwd=house, capture_output=True, text=True, check=False)


def test_the_house_as_it_stands_keeps_every_rule(house: Path) -> None:
    done = lint(house)
    assert done.returncode == 0, done.stdout


def test_every_rule_has_a_planted_violation() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in configured} == {rule for rule, _, _ in VIOLATIONS}


@pytest.mark.parametrize(("rule", "file", "line"), VIOLATIONS, ids=[f"{file}: {line}" for _, file, line in VIOLATIONS])
def test_a_planted_violation_is_seen(house: Path, rule: str, file: str, line: str) -> None:
    planted = house / file
    before = planted.read_text()
    planted.write_text(f"{before}\n{line}\n")
    try:
        done = lint(house)
    finally:
        planted.write_text(before)
    assert done.returncode != 0
    assert f"{rule} BROKEN" in done.stdout
