"""Each import rule sees its violation: all are planted in one copy of the source, and the rule names each.

A cycle is reported by what it consists of, so the violations of that rule are planted one at a time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOP_PACKAGES = ("marketplace", "jobs", "billing", "provider_agent", "runtimes")

CYCLES = "No two siblings import each other, on whatever way"
# rule -> (file, the line planted in it); several for a rule with several parts
VIOLATIONS = [
    ("Imports point down only", "marketplace/foundation/clock.py", "import marketplace.accounts.models"),
    ("Imports point down only", "marketplace/accounts/models.py", "import marketplace.nodes.models"),
    ("Imports point down only", "marketplace/nodes/models/node.py", "import billing.books.ledger"),
    ("Imports point down only", "billing/books/ledger.py", "import marketplace.nodes.models"),
    ("Imports point down only", "billing/books/ledger.py", "from jobs import states"),
    ("Imports point down only", "jobs/lifecycle.py", "import marketplace.config.settings"),
    ("Imports point down only", "marketplace/portal/landing/views.py", "import marketplace.config.checks"),
    ("The server knows of the agent only its protocol", "jobs/lifecycle.py", "import provider_agent.keys"),
    (
        "The server knows of the agent only its protocol",
        "billing/charging/metering.py",
        "from provider_agent.lease import receipts",
    ),
    (
        "Everybody knows of the runtimes only contract, planner and shapes",
        "jobs/lifecycle.py",
        "import runtimes.train",
    ),
    (
        "Everybody knows of the runtimes only contract, planner and shapes",
        "provider_agent/sync.py",
        "import runtimes.probe",
    ),
    ("The planner needs no torch", "runtimes/plan/memory.py", "import torch"),
    ("The agent imports nothing of the server", "provider_agent/sync.py", "import jobs.wire"),
    ("The agent imports nothing of the server", "provider_agent/protocol/__init__.py", "import django"),
    ("The runtimes import nothing of ours", "runtimes/contract.py", "import provider_agent.protocol"),
    ("The runtimes import nothing of ours", "runtimes/contract.py", "import pydantic"),
    ("The customer's side needs no server", "jobs/wire/job.py", "import django.db"),
    ("The customer's side needs no server", "jobs/client/__init__.py", "import jobs.models"),
    ("The customer's side needs no server", "jobs/client/__init__.py", "import billing.money"),
    ("Whoever checks a proof needs no server", "billing/proofs/merkle.py", "import billing.money"),
    ("No two siblings import each other, on whatever way", "jobs/matching/fit.py", "import jobs.lifecycle"),
    ("No two siblings import each other, on whatever way", "billing/books/ledger.py", "import billing.charging.holds"),
    ("The agent's packages import downwards only", "provider_agent/lease/record.py", "import provider_agent.sync"),
    ("The agent's packages import downwards only", "provider_agent/context/heartbeat.py", "import provider_agent.node"),
    ("The gateway has no database", "jobs/gateway/engines/upstream.py", "import django.db"),
    ("The gateway has no database", "jobs/gateway/messages.py", "import jobs.models"),
    ("Scaling decides without a database", "jobs/scaling/autoscaling.py", "import jobs.models"),
    ("Scaling decides without a database", "jobs/scaling/rollout.py", "from jobs.endpoints import minutes"),
    ("Endpoints do not know the lifecycle", "jobs/endpoints/versions.py", "from jobs import lifecycle"),
    ("Only billing's Stripe client imports stripe", "billing/charging/settlement.py", "import stripe"),
    ("Only billing's chain package imports web3", "billing/charging/settlement.py", "import web3"),
    ("Only the remote installation imports paramiko", "provider_agent/sync.py", "import paramiko"),
    ("Only the Docker executor imports docker", "provider_agent/executors/process.py", "import docker"),
    ("Only the S3 modules import boto3", "jobs/artifacts/local.py", "import boto3"),
    (
        "Only the S3 modules import boto3",
        "jobs/lifecycle.py",
        "import botocore.exceptions",
    ),
    ("Only the S3 modules import boto3", "runtimes/train/data/documents.py", "import botocore.session"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("tree")
    for package in TOP_PACKAGES:
        shutil.copytree(
            ROOT / package,
            copy / package,
            ignore=lambda folder, names: {
                name for name in names if not (name.endswith(".py") or (Path(folder) / name).is_dir())
            },
        )
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def test_the_code_as_it_stands_keeps_every_rule(tree: Path) -> None:
    done = lint(tree)
    assert done.returncode == 0, done.stdout


def test_every_rule_has_a_planted_violation() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in configured} == {rule for rule, _, _ in VIOLATIONS}


@pytest.fixture(scope="module")
def report(tree: Path) -> dict[str, str]:
    """What each rule reports of all planted violations but the cycles: its section of one report."""
    before = {file: (tree / file).read_text() for rule, file, _ in VIOLATIONS if rule != CYCLES}
    for rule, file, line in VIOLATIONS:
        if rule != CYCLES:
            planted = tree / file
            planted.write_text(f"{planted.read_text()}\n{line}  # planted\n")
    try:
        done = lint(tree)
        lines = {file: (tree / file).read_text().splitlines() for file in before}
    finally:
        for file, text in before.items():
            (tree / file).write_text(text)
    assert done.returncode != 0
    parts = re.split(r"\n([^\n]+)\n-{3,}\n", done.stdout[done.stdout.index("Broken contracts") :])
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return sections | {file: "\n".join(text) for file, text in lines.items()}


def imports_of(file: str, line: str, text: str) -> str:
    """How a report names the import that a line of a file makes: importer, and the line's number."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return rf"{re.escape(module)} -> \S+ \([^)]*\bl\.{text.splitlines().index(line + '  # planted') + 1}\b"


WHERE = [each for each in VIOLATIONS if each[0] != CYCLES]
ROUND = [each for each in VIOLATIONS if each[0] == CYCLES]


@pytest.mark.parametrize(("rule", "file", "line"), WHERE, ids=[f"{file}: {line}" for _, file, line in WHERE])
def test_a_planted_violation_is_seen(report: dict[str, str], rule: str, file: str, line: str) -> None:
    assert re.search(imports_of(file, line, report[file]), report[rule]), report[rule]


@pytest.mark.parametrize(("rule", "file", "line"), ROUND, ids=[f"{file}: {line}" for _, file, line in ROUND])
def test_a_planted_cycle_is_seen(tree: Path, rule: str, file: str, line: str) -> None:
    planted = tree / file
    before = planted.read_text()
    planted.write_text(f"{before}\n{line}\n")
    try:
        done = lint(tree)
    finally:
        planted.write_text(before)
    assert done.returncode != 0
    assert f"{rule} BROKEN" in done.stdout
