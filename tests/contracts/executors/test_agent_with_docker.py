"""The whole agent over a real engine: a job in a container, adopted by a second agent, its output shipped."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.protocol import ATTEMPT_ENDS, AttemptState, Program, Reason
from tests.contracts.executors.engine import IMAGE
from tests.contracts.executors.providers import bob_over
from tests.fakes.wheels import make_wheel
from tests.integration.provider_agent.conftest import Bob, eventually

SETUP_SECONDS_MAX = 120.0
CODE = (
    "import os, time\n"
    "print('up', os.environ['SOUK_WORK_DIR'], flush=True)\n"
    "while not os.path.exists('go'): time.sleep(0.1)\n"
    "open(os.environ['SOUK_OUTPUT_DIR'] + '/model', 'w').write('weights')\n"
    "os.symlink('/etc/shadow', os.environ['SOUK_OUTPUT_DIR'] + '/theft')\n"
)


@pytest.fixture
def bob(engine: str, tmp_path: Path) -> Iterator[Bob]:
    """Bob's node over the engine."""
    with bob_over(engine, tmp_path / "bob") as made:
        yield made


@pytest.mark.docker
def test_container_job_survives_the_agent_and_ships_its_output(bob: Bob) -> None:
    lease = bob.server.give(bob.assignment(program=Program(image=IMAGE, command=["python3", "-c", CODE])))
    eventually(lambda: lease.logs.endswith(b"up /souk\n"), "the first output")
    lines = lease.logs.decode().splitlines()[:-1]
    assert all(line.startswith("[souk] ") for line in lines)
    assert [line.split()[1] for line in lines[:4]] == ["isolation:", "memory:", "shared", "processor:"]
    assert b"no limit" not in lease.logs, lease.logs
    logged = lease.logs
    bob.stop(signal.SIGKILL)
    bob.start()
    (bob.folder.lease(lease.assignment.lease_id) / "work" / "go").touch()
    eventually(lambda: lease.report and lease.report.state is AttemptState.SUCCEEDED, "success")
    output = next(artifact for artifact in bob.server.artifacts.values() if artifact.is_complete)
    assert sorted(file.path for file in output.begin.files) == ["go", "model"], "also what lies beside output/"
    eventually(
        lambda: lease.logs == logged + b"[souk] collected 1 file (go) beside output/\n", "the last line of the log"
    )
    bob.server.forget_lease(lease)
    eventually(lambda: not bob.folder.lease(lease.assignment.lease_id).exists(), "the forgetting")


@pytest.mark.docker
def test_requirements_and_setup_come_before_the_command_in_its_container(bob: Bob) -> None:
    name, wheel = make_wheel("souk_toy", "1.0", "WORD = 'toy'\n")
    input_id = uuid4()
    bob.server.downloads[input_id] = {"requirements.txt": b"souk_toy==1.0\n", f"wheels/{name}": wheel}
    code = "import souk_toy, sys; print(souk_toy.WORD, open('made').read().strip(), sys.prefix)"
    setup = ["python -c 'import souk_toy; print(souk_toy.WORD)' > made"]
    program = Program(image=IMAGE, command=["python", "-c", code], setup=setup, requirements="requirements.txt")
    lease = bob.server.give(bob.assignment(program=program, input_artifact_id=input_id))
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end", seconds=SETUP_SECONDS_MAX)
    assert lease.report is not None and lease.report.reason is Reason.COMPLETED, lease.logs
    eventually(lambda: b"\ntoy toy /souk/.environment\n" in lease.logs, "what the command printed")


@pytest.mark.docker
def test_a_later_container_of_the_same_customer_finds_the_environment(bob: Bob) -> None:
    name, wheel = make_wheel("souk_toy", "1.0", "def main(): print('ran the toy')\n")
    input_id = uuid4()
    bob.server.downloads[input_id] = {"requirements.txt": b"souk_toy==1.0\n", f"wheels/{name}": wheel}
    program = Program(image=IMAGE, command=["souk_toy"], requirements="requirements.txt")

    def log_of_one() -> str:
        lease = bob.server.give(bob.assignment(program=program, input_artifact_id=input_id, cache_owner="a" * 32))
        eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end", seconds=SETUP_SECONDS_MAX)
        report = lease.report
        assert report is not None and report.reason is Reason.COMPLETED, lease.logs
        eventually(lambda: len(lease.logs) == report.log_bytes, "the last of the log")
        return lease.logs.decode()

    first, second = log_of_one(), log_of_one()
    assert "kept in this node's cache for later jobs of yours: environment of 1 package, " in first
    assert "[souk] environment of 1 package found on this node (" in second
    assert "\nran the toy\n" in second
    assert "Installing" not in second


@pytest.mark.docker
def test_a_stop_during_setup_starts_no_command_in_its_container(bob: Bob) -> None:
    program = Program(image=IMAGE, command=["echo", "never started"], setup=["echo ready; sleep 600"])
    lease = bob.server.give(bob.assignment(program=program, stop_grace_seconds=60))
    eventually(lambda: b"\nready" in lease.logs, "the setup", seconds=SETUP_SECONDS_MAX)
    bob.server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end", seconds=SETUP_SECONDS_MAX)
    assert lease.report is not None and lease.report.reason is Reason.CANCELLED_BY_CUSTOMER
    assert b"never started" not in lease.logs


@pytest.mark.docker
def test_image_that_cannot_be_had_is_named(bob: Bob) -> None:
    lease = bob.server.give(bob.assignment(program=Program(image="127.0.0.1:9/souk-test/nowhere:1", command=["true"])))
    eventually(lambda: lease.report and lease.report.state is AttemptState.FAILED, "the failure")
    assert lease.report is not None
    assert lease.report.reason is Reason.IMAGE_UNAVAILABLE


@pytest.mark.docker
def test_doctor_reports_whether_disks_and_networks_can_be_limited(bob: Bob) -> None:
    found = {finding["check"]: finding for finding in json.loads(bob.run("doctor", "--json").stdout)}
    assert found["disk limit"]["verdict"] == "PASS", found
    assert found["egress"] == {"verdict": "SKIP", "check": "egress", "found": "jobs are offered no network", "fix": ""}
