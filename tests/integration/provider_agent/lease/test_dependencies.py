"""What a job file wants before its command: setup lines, and requirements that a node keeps for one organisation."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.protocol import AttemptState, Program, Reason
from tests.fakes.wheels import make_wheel
from tests.integration.provider_agent.conftest import Bob, eventually, processes_of
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALICE, MALLORY = "a" * 64, "b" * 64
USES_IT = "import souk_toy, torch, sys; print('toy', souk_toy.__file__, torch.__version__, sys.prefix)"
KEPT = b"[souk] requirements: installed on this node before, and used again\n"


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start()
    return bob


def give(
    bob: Bob, server: FakeServer, command: list[str], *, setup: list[str] | None = None, **changes: object
) -> Lease:
    return server.give(bob.assignment(program=Program(command=command, setup=setup), **changes))


def give_toy(
    bob: Bob, server: FakeServer, code: str = USES_IT, *, scope: str = ALICE, setup: list[str] | None = None
) -> Lease:
    """A lease whose requirements lie beside it as a wheel."""
    input_id = uuid4()
    name, wheel = make_wheel("souk_toy", "1.0", "def main(): print('ran the toy')\n")
    server.downloads[input_id] = {"requirements.txt": b"souk-toy==1.0\n", f"wheels/{name}": wheel}
    program = Program(command=["python", "-c", code], setup=setup, requirements="requirements.txt")
    changes = {"program": program, "input_artifact_id": input_id, "environment_scope": scope}
    return server.give(bob.assignment(**changes))


def kept(bob: Bob) -> list[Path]:
    """The environments of the node that are complete."""
    return sorted((bob.data / "environments").glob("*.json"))


def test_setup_lines_run_before_the_command_and_each_is_in_the_log(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, ["cat", "made"], setup=["echo 'of the setup' > made", "test -d input"])
    assert until_ended(lease).reason is Reason.COMPLETED, lease.logs
    assert b"[souk] setup 1 of 2: echo 'of the setup' > made\n[souk] setup 1 of 2 ended with exit code 0" in lease.logs
    assert b"[souk] setup 2 of 2 ended with exit code 0 after 0 s\nof the setup\n" in lease.logs


def test_a_setup_line_that_fails_is_the_customers_fault_and_is_named(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, ["echo", "never"], setup=["true", 'echo "no" >&2; exit 7', "true"])
    report = until_ended(lease)
    assert (report.reason, report.exit_code) == (Reason.EXIT_NONZERO, 7)
    assert report.message == 'setup 2 of 3 ended with exit code 7: echo "no" >&2; exit 7'
    assert b"setup 3" not in lease.logs


def test_a_stop_ends_the_setup_and_the_command_never_starts(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, ["echo", "never started"], setup=["echo ready; sleep 600"])
    eventually(lambda: b"\nready" in lease.logs, "the setup")
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    assert until_ended(lease).reason is Reason.CANCELLED_BY_CUSTOMER
    assert b"ended with exit code 143" in lease.logs
    assert b"never started" not in lease.logs
    assert processes_of(lease.assignment.lease_id) == []


def test_pip_in_a_setup_line_installs_for_this_attempt_alone(running: Bob, server: FakeServer) -> None:
    input_id = uuid4()
    name, wheel = make_wheel("souk_toy", "1.0", "def main(): pass\n")
    server.downloads[input_id] = {name: wheel}
    command = ["python", "-c", USES_IT]
    lease = give(running, server, command, setup=[f"pip install --no-index input/{name}"], input_artifact_id=input_id)
    assert until_ended(lease).reason is Reason.COMPLETED, lease.logs
    assert b"/work/.environment/lib/" in lease.logs
    after = give(running, server, command)
    assert until_ended(after).reason is Reason.EXIT_NONZERO


def test_requirements_are_installed_once_for_an_organisation(running: Bob, server: FakeServer) -> None:
    first = give_toy(running, server)
    report = until_ended(first)
    assert report.reason is Reason.COMPLETED, first.logs
    assert report.billable_ms > 500, "installing is the customer's time"
    assert KEPT not in first.logs
    assert b"/environments/" in first.logs
    second = give_toy(running, server, setup=["souk_toy"])
    assert until_ended(second).reason is Reason.COMPLETED, second.logs
    assert KEPT in second.logs
    assert b"ran the toy" in second.logs
    assert b"pip install" not in second.logs
    stranger = give_toy(running, server, scope=MALLORY)
    assert until_ended(stranger).reason is Reason.COMPLETED, stranger.logs
    assert KEPT not in stranger.logs, "another organisation's is never used"
    assert len(kept(running)) == 2


def test_no_job_writes_into_what_later_jobs_use(running: Bob, server: FakeServer) -> None:
    attack = """
import glob, os, pathlib, souk_toy
site = pathlib.Path(souk_toy.__file__).parent
for name, do in {
    'write': lambda: pathlib.Path(souk_toy.__file__).write_text('evil'),
    'mode': lambda: (os.chmod(souk_toy.__file__, 0o644), open(souk_toy.__file__, 'w')),
    'add': lambda: (site / 'evil.py').write_text('evil'),
    'unlink': lambda: os.unlink(souk_toy.__file__),
    'link': lambda: os.link(souk_toy.__file__, 'mine'),
    'rename': lambda: os.rename(site.parents[2], site.parents[2].with_name('other')),
    'marker': lambda: [pathlib.Path(p).write_text('{}') for p in glob.glob(str(site.parents[3] / '*.json'))],
}.items():
    try: do(); print('DONE', name)
    except OSError as error: print('refused', name, error.errno)
"""
    first = give_toy(running, server, attack)
    assert until_ended(first).reason is Reason.COMPLETED, first.logs
    assert first.logs.count(b"refused") == 7, first.logs
    second = give_toy(running, server)
    assert until_ended(second).reason is Reason.COMPLETED, second.logs
    assert KEPT in second.logs


def test_requirements_that_cannot_be_installed_are_named(running: Bob, server: FakeServer) -> None:
    input_id = uuid4()
    server.downloads[input_id] = {"requirements.txt": b"souk-toy==9\n", "wheels/README": b"none"}
    program = Program(command=["true"], requirements="requirements.txt")
    changes = {"program": program, "input_artifact_id": input_id, "environment_scope": ALICE}
    lease = server.give(running.assignment(**changes))
    report = until_ended(lease)
    assert report.reason is Reason.EXIT_NONZERO
    assert report.message.startswith("requirements ended with exit code 1: ")
    assert b"No matching distribution found for souk-toy==9" in lease.logs
    assert kept(running) == []
    assert list((running.data / "environments").iterdir()) == [], "nothing half is left"


def test_an_agent_killed_while_it_installs_begins_anew(running: Bob, server: FakeServer) -> None:
    lease = give_toy(running, server)
    eventually(lambda: b"[souk] requirements: " in lease.logs, "the installation")
    running.stop(signal.SIGKILL)
    half = [each for each in (running.data / "environments").iterdir() if each.is_dir()]
    assert len(half) == 1, "it was in the middle"
    assert kept(running) == []
    running.start()
    assert until_ended(lease).state is AttemptState.SUCCEEDED, lease.logs
    assert len(kept(running)) == 1
    assert not half[0].exists()
    assert [each for each in (running.data / "environments").iterdir() if each.is_dir()] != half
