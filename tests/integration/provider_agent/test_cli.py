"""The souk-agent command: what it prints, what it exits with, and what it must not import."""

from __future__ import annotations

import json
import subprocess
import sys
from uuid import uuid4

import pytest

from provider_agent.journal import FACT_CHECK, Journal
from provider_agent.keys import load_keys
from provider_agent.protocol import CheckVerdict, Finding
from tests.integration.provider_agent.conftest import REPOSITORY, Bob
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = pytest.mark.slow

ENROL = [
    "--executor",
    "process",
    "--name",
    "bob-1",
    "--price",
    "0.75",
    "--region",
    "eu-west",
    "--device-kind",
    "cpu",
    "--devices",
    "2",
]


def enrol(bob: Bob, token: str) -> subprocess.CompletedProcess[str]:
    python = ["--runtime-python", sys.executable]
    return bob.run("enrol", "--server", bob.server.url, "--token", token, *ENROL, *python)


def test_enrol_status_doctor_and_retire(bob: Bob, server: FakeServer) -> None:
    done = enrol(bob, server.token)
    assert done.returncode == 0, done.stderr
    node = server.nodes[bob.node_id()]
    assert node.offer.price_usd_micros_per_device_hour == 750_000
    assert node.receipt_address == load_keys(bob.data).receipt_address
    for name in ("transport.key", "receipt.key", "config.json"):
        assert (bob.data / name).stat().st_mode & 0o777 == 0o600
    status = json.loads(bob.run("status", "--json").stdout)
    assert (status["running"], status["leases"], status["name"]) == (False, [], "bob-1")
    findings = json.loads(bob.run("doctor", "--json").stdout)
    assert {finding["check"] for finding in findings} >= {"enrolment", "keys", "server (api)", "clock", "runtime"}
    assert [finding for finding in findings if finding["verdict"] == "FIX" and finding["check"] == "keys"] == []
    assert bob.run("retire", "--yes").returncode == 0
    assert len(server.retired) == 1
    after = bob.run("status")
    assert after.returncode == 3, after.stderr


def test_second_enrolment_of_a_folder_is_refused(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    done = enrol(bob, "another-token-0123456789")
    assert done.returncode == 3
    assert "holds an enrolled node already" in done.stderr


def test_an_interpreter_that_is_not_there_is_refused_before_the_token_is_used(bob: Bob, server: FakeServer) -> None:
    missing = ["--runtime-python", "/nowhere/bin/python"]
    done = bob.run("enrol", "--server", bob.server.url, "--token", server.token, *ENROL, *missing)
    assert done.returncode == 2
    assert "/nowhere/bin/python is no program" in done.stderr
    assert enrol(bob, server.token).returncode == 0, "the token is as good as before"


def test_doctor_says_how_to_fix_an_interpreter_that_is_gone(bob: Bob) -> None:
    bob.enrol(runtime_python="/nowhere/bin/python")
    found = next(f for f in json.loads(bob.run("doctor", "--json").stdout) if f["check"] == "runtime")
    assert found["verdict"] == "FIX"
    assert "/nowhere/bin/python is no program" in found["found"]
    assert "config.json" in found["fix"]


def test_wrong_token_is_refused_in_one_line(bob: Bob) -> None:
    done = enrol(bob, "mallorys-token-0123456789")
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "token_unknown" in done.stderr


def test_unreachable_server_is_one_line(bob: Bob, server: FakeServer) -> None:
    server.stop()
    done = enrol(bob, server.token)
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1


def test_wrong_options_are_named(bob: Bob, server: FakeServer) -> None:
    done = bob.run("enrol", "--server", server.url, "--token", server.token, "--executor", "podman")
    assert done.returncode == 2
    assert "--executor" in done.stderr


def test_failed_check_is_shown_with_the_number_measured_and_the_number_needed(bob: Bob) -> None:
    bob.enrol()
    wrong = Finding(
        device="GPU-1", what="memory_blocks", measured=3, needed=12, is_passed=False, message="memory was not filled"
    )
    right = Finding(device="GPU-1", what="products", measured=6, needed=6, is_passed=True)
    verdict = CheckVerdict(check_id=uuid4(), state="failed", findings=[right, wrong])
    journal = Journal(bob.folder.journal)
    journal.save_fact(FACT_CHECK, verdict.model_dump_json())
    journal.close()
    shown = bob.run("status").stdout
    assert "last check: failed" in shown
    assert "GPU-1  memory_blocks: measured 3, needed 12  memory was not filled" in shown
    assert "products" not in shown


def test_an_executor_is_named_and_never_assumed(bob: Bob, server: FakeServer) -> None:
    done = bob.run("enrol", "--server", server.url, "--token", server.token)
    assert done.returncode == 2
    assert "--executor" in done.stderr
    assert server.enrolled is None


def test_a_provider_is_told_whose_programs_run_without_isolation(bob: Bob, server: FakeServer) -> None:
    python = ["--runtime-python", sys.executable]
    done = bob.run("enrol", "--server", server.url, "--token", server.token, *ENROL, *python)
    assert "isolates nothing" in done.stdout
    assert "jobs of your own organisation only" in done.stdout
    assert server.enrolled is not None
    assert not server.enrolled.facts.allows_strangers


def test_a_node_lets_strangers_in_where_its_provider_says_so(bob: Bob, server: FakeServer) -> None:
    python = ["--runtime-python", sys.executable]
    done = bob.run("enrol", "--server", server.url, "--token", server.token, *ENROL, *python, "--allow-strangers")
    assert "organisations that you do not know" in done.stdout
    assert server.enrolled is not None
    assert server.enrolled.facts.allows_strangers


COMMANDS = ["enrol", "start", "status", "doctor", "drain", "resume", "price", "schedule", "earnings", "logs", "retire"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(bob: Bob, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "provider_agent", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert "Example:" in done.stdout


def test_neither_django_nor_torch_is_imported() -> None:
    code = (
        "import sys, pkgutil, importlib, provider_agent\n"
        "for found in pkgutil.walk_packages(provider_agent.__path__, 'provider_agent.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    imported = set(eval(done.stdout))
    assert "docker" in imported
    assert not imported & {
        "django",
        "rich",
        "pygments",
        "pynvml",
        "torch",
        "numpy",
        "marketplace",
        "jobs",
        "billing",
        "celery",
        "web3",
    }
