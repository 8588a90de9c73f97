"""The engine under a running lease is stopped, started, killed: what can go on does, what cannot is the node's fault.

Each test has an engine of its own, with live-restore or without, and the real agent; only the marketplace is played.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from provider_agent.protocol import REASONS, Assignment, AttemptState, Program, Reason
from tests.contracts.executors.engine import (
    ENGINE_SECONDS_MAX,
    IMAGE,
    engine_command,
    import_base_image,
    wait_for_engine,
)
from tests.contracts.executors.providers import bob_over
from tests.contracts.executors.world import World
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.fake_leases import Lease

pytestmark = pytest.mark.docker
COUNTS = "import time\nn = 0\nwhile True:\n    print(n, flush=True)\n    n += 1\n    time.sleep(0.2)\n"
POLITE = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "print('up', flush=True)\n"
    "time.sleep(600)\n"
)
LOOK = re.compile(rb"GET /[^ ]*containers/[0-9a-f]+/json")
CALLS_MAX = 1_000  # of an agent to an engine that is away


class Engine:
    """A private engine that can be stopped, killed and started again on the same data."""

    def __init__(self, world: World, folder: Path, *, live_restore: bool) -> None:
        self.address = f"unix://{folder}/docker.sock"
        self._folder = folder
        self._command = engine_command(world, folder, self.address, folder / "data")
        configuration = json.loads((folder / "daemon.json").read_text())
        (folder / "daemon.json").write_text(json.dumps({**configuration, "live-restore": live_restore}))
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._daemon = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_for_engine(self._daemon, self.address, self._folder / "log")

    def stop(self) -> None:
        """As an upgrade does it."""
        assert self._daemon is not None
        self._daemon.terminate()
        self._daemon.wait(ENGINE_SECONDS_MAX)

    def be_away_until_missed(self) -> None:
        """Until the agent has looked for its container in vain.

        On a busy computer a whole restart fits between two of its looks; then it cannot know that a program which left
        with status 0 was asked to.
        """
        socket_path = Path(self.address.removeprefix("unix://"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(socket_path))
            listener.listen()
            listener.settimeout(ENGINE_SECONDS_MAX)
            assert any(LOOK.match(_hang_up_on(listener)) for _ in range(CALLS_MAX))
        socket_path.unlink()

    def lose_power(self) -> None:
        """The engine, its containerd, its shims and all that is in its containers, at once."""
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._daemon is not None:
            self._daemon.wait(ENGINE_SECONDS_MAX)
        (self._folder / "pid").unlink(missing_ok=True)
        for mount in _mounts_below(self._folder / "exec"):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
        shutil.rmtree(self._folder / "exec", ignore_errors=True)  # lies below /run, usually, which no reboot keeps

    def containers(self) -> list[str]:
        listed = subprocess.run(
            ["docker", "--host", self.address, "ps", "--all", "--quiet"], capture_output=True, text=True, check=True
        )
        return listed.stdout.split()

    def _family(self) -> list[psutil.Process]:
        """By the engine's own folder, which stands in the words of each of its processes."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(str(self._folder) in word for word in process.cmdline()) and process.name() != "python":
                    found += [process, *process.children(recursive=True)]
        return found


@pytest.fixture
def engine_of(world: World, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With live-restore where the test's parameter says so."""
    with tempfile.TemporaryDirectory(prefix="updates-engine-", ignore_cleanup_errors=True) as name:
        engine = Engine(world, Path(name), live_restore=getattr(request, "param", False))
        try:
            engine.start()
            import_base_image(engine.address)
            yield engine
        finally:
            engine.lose_power()
            for left in _mounts_below(Path(name)):
                subprocess.run(["umount", "--lazy", left], capture_output=True, check=False)


@pytest.fixture
def bob(engine_of: Engine, tmp_path: Path) -> Iterator[Bob]:
    with bob_over(engine_of.address, tmp_path / "bob") as made:
        yield made


@pytest.mark.parametrize("engine_of", [True], indirect=True)
def test_with_live_restore_the_program_its_log_and_its_bill_go_on(bob: Bob, engine_of: Engine) -> None:
    lease = bob.server.give(_job(bob, COUNTS))
    eventually(lambda: _is_running(lease) and b"\n9\n" in lease.logs, "it to run")
    engine_of.stop()
    engine_of.start()
    before = len(lease.logs)
    eventually(lambda: len(lease.logs) > before + 40, "more output", 40)
    assert _is_running(lease), lease.report
    printed = [int(line) for line in lease.logs.decode().splitlines()[:-1] if line.isdigit()]
    assert printed == list(range(len(printed))), "no line is missing, none comes twice"
    bob.server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    _wait_for_end(lease)
    assert lease.report is not None
    assert lease.report.reason is Reason.CANCELLED_BY_CUSTOMER
    assert lease.report.billable_ms <= (len(printed) * 0.2 + 15) * 1000, "no second is billed twice"


@pytest.mark.parametrize("code", [COUNTS, POLITE], ids=["killed", "leaves with status 0 when asked"])
def test_without_live_restore_the_node_broke_the_attempt(bob: Bob, engine_of: Engine, code: str) -> None:
    lease = bob.server.give(_job(bob, code))
    eventually(lambda: _is_running(lease), "it to run")
    engine_of.stop()
    engine_of.be_away_until_missed()
    engine_of.start()
    _wait_for_end(lease)
    _is_the_nodes_fault(lease)
    bob.server.forget_lease(lease)
    _takes_work_again(bob, engine_of, lease)


def test_after_a_power_cut_the_attempt_is_lost_and_nothing_of_it_is_left(bob: Bob, engine_of: Engine) -> None:
    lease = bob.server.give(_job(bob, COUNTS))
    eventually(lambda: _is_running(lease), "it to run")
    bob.stop(signal.SIGKILL)
    billed = lease.report.billable_ms if lease.report else 0
    engine_of.lose_power()
    for mount in _mounts_below(bob.folder.leases):  # the kernel's are gone with it
        subprocess.run(["umount", mount], check=True)
    engine_of.start()
    bob.start()
    _wait_for_end(lease)
    _is_the_nodes_fault(lease)
    assert lease.report is not None
    assert lease.report.billable_ms <= billed + 5_000, "the time without power is not billed"
    bob.server.forget_lease(lease)
    _takes_work_again(bob, engine_of, lease)


# --- below


def _hang_up_on(listener: socket.socket) -> bytes:
    """What the next caller begins to say."""
    caller, _ = listener.accept()
    with caller:
        caller.settimeout(ENGINE_SECONDS_MAX)
        return caller.recv(4096)


def _job(bob: Bob, code: str) -> Assignment:
    return bob.assignment(program=Program(image=IMAGE, command=["python3", "-c", code]))


def _is_running(lease: Lease) -> bool:
    return lease.report is not None and lease.report.state is AttemptState.RUNNING


def _wait_for_end(lease: Lease) -> None:
    ends = {AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST}
    eventually(lambda: lease.report is not None and lease.report.state in ends, "an end", 60)


def _is_the_nodes_fault(lease: Lease) -> None:
    assert lease.report is not None
    assert lease.report.reason is Reason.PROCESS_VANISHED, lease.report
    outcome = REASONS[lease.report.reason]
    assert (outcome.retry, outcome.fault) == (True, "provider")


def _takes_work_again(bob: Bob, engine: Engine, dead: Lease) -> None:
    """Of the dead lease neither folder, mount, container nor network is left, and the next one succeeds."""
    folder = bob.folder.lease(dead.assignment.lease_id)
    eventually(lambda: not folder.exists(), "the forgetting")
    assert _mounts_below(bob.folder.leases) == []
    assert engine.containers() == []
    names = subprocess.run(
        ["docker", "--host", engine.address, "network", "ls", "--format", "{{.Name}}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sorted(names.stdout.split()) == ["bridge", "host", "none"]
    again = bob.server.give(_job(bob, "print('again')"))
    _wait_for_end(again)
    assert again.report is not None
    assert again.report.state is AttemptState.SUCCEEDED, again.report


def _mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]
