"""What may happen to a node that lends: nothing is lost, nothing is billed twice, and what can go on goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from provider_agent.protocol import ATTEMPT_ENDS, ZERO_HASH, AttemptState, Reason, receipt_digest
from tests.integration.provider_agent.conftest import Bob, eventually, processes_of, python
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = pytest.mark.slow

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
UNTIL_GO = "import os, time\nprint(1, flush=True)\nwhile not os.path.exists('go'): time.sleep(0.1)\nprint(2)"
DISK_BYTES = 4 * 1024 * 1024
# The very agent, but that a new one waits three seconds for news of a lease that it adopted.
SHORT = (
    "from provider_agent.lease import deadline as d; d.ADOPTED_SECONDS_MIN = 1.0; d.ADOPTED_SECONDS_MAX = 3.0\n"
    "from provider_agent.resident import main\n"
    "if __name__ == '__main__': raise SystemExit(main())\n"
)


def until_running(lease: Lease) -> None:
    eventually(lambda: lease.report and lease.report.state is AttemptState.RUNNING, "running")


def until_ended(lease: Lease) -> Reason:
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end")
    report = lease.report
    assert report is not None
    assert report.reason is not None
    eventually(lambda: len(lease.receipts) == report.receipt_seq, "the last receipt")
    return report.reason


def check_bill(lease: Lease, *, seconds_max: float) -> None:
    """One chain of receipts that only rises, and claims no more than the time that passed."""
    previous, billed = ZERO_HASH, 0
    for number, signed in enumerate(lease.receipts, start=1):
        assert (signed.receipt.seq, signed.receipt.prev_digest) == (number, previous)
        assert signed.receipt.billable_ms > billed
        previous, billed = receipt_digest(signed.receipt), signed.receipt.billable_ms
    assert lease.report is not None
    assert 0 < billed == lease.report.billable_ms <= seconds_max * 1000


def test_agent_that_is_killed_again_and_again_bills_each_second_once(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    began = time.monotonic()
    lease = server.give(bob.assignment(*python(UNTIL_GO)))
    until_running(lease)
    for _ in range(3):
        time.sleep(0.7)
        bob.stop(signal.SIGKILL)
        bob.start()
    bob.let_go(lease.assignment.lease_id)
    assert until_ended(lease) is Reason.COMPLETED
    check_bill(lease, seconds_max=time.monotonic() - began)
    whole = b"1\n2\n[souk] collected 1 file (go) beside output/\n"
    eventually(lambda: len(lease.logs) >= len(whole), "the last log byte")
    assert lease.logs == whole


def test_marketplace_away_longer_than_the_lease_finds_it_stopped_and_billed(bob: Bob, server: FakeServer) -> None:
    server.lease_seconds = 4
    bob.enrol()
    bob.start()
    began = time.monotonic()
    lease = server.give(bob.assignment(*python(SLEEP)))
    until_running(lease)
    time.sleep(1)
    server.stop()
    eventually(lambda: not processes_of(lease.assignment.lease_id), "the watchdog", seconds=20)
    seconds = time.monotonic() - began
    time.sleep(2)
    server.start()
    assert until_ended(lease) is Reason.LEASE_EXPIRED
    check_bill(lease, seconds_max=seconds)


def test_new_agent_that_reaches_nobody_stops_what_it_adopted(bob: Bob, server: FakeServer, tmp_path: Path) -> None:
    server.clock_offset = timedelta(hours=2)  # by our clock, the lease lasts two hours
    (tmp_path / "short.py").write_text(SHORT)
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python(SLEEP)))
    until_running(lease)
    bob.stop(signal.SIGKILL)
    server.stop()
    bob.start(program=[sys.executable, str(tmp_path / "short.py")])
    eventually(lambda: not processes_of(lease.assignment.lease_id), "the watchdog", seconds=20)
    server.start()
    assert until_ended(lease) is Reason.LEASE_EXPIRED


@pytest.mark.parametrize("hours", [-3, 3])
def test_agent_that_starts_with_a_wrong_clock_adopts_and_goes_on(bob: Bob, server: FakeServer, hours: int) -> None:
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python(UNTIL_GO)))
    until_running(lease)
    bob.stop(signal.SIGKILL)
    server.clock_offset = timedelta(hours=hours)
    bob.start()
    time.sleep(1.5)
    bob.let_go(lease.assignment.lease_id)
    assert until_ended(lease) is Reason.COMPLETED


def test_clock_that_jumps_forth_and_back_ends_no_lease_and_bills_no_hour(bob: Bob, server: FakeServer) -> None:
    server.lease_seconds = 6
    bob.enrol()
    bob.start()
    began = time.monotonic()
    lease = server.give(bob.assignment(*python(UNTIL_GO)))
    until_running(lease)
    for hours in (-1, 2, 0):  # between the node and the marketplace: the node's clock jumped the other way
        server.clock_offset = timedelta(hours=hours)
        time.sleep(1.5)
        assert lease.report is not None
        assert lease.report.state is AttemptState.RUNNING
    bob.let_go(lease.assignment.lease_id)
    assert until_ended(lease) is Reason.COMPLETED
    check_bill(lease, seconds_max=time.monotonic() - began)


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, bob: Bob, tmp_path: Path) -> Iterator[Path]:
    """Bob's data folder on a disk of its own that is soon full; what his agent prints goes elsewhere."""
    size = getattr(request, "param", DISK_BYTES)
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    bob.data.mkdir(parents=True)
    bob.printed = tmp_path / "printed"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(bob.data)], check=True)
    yield bob.data
    if bob.process is not None:
        bob.stop(signal.SIGKILL)
    for lease_id in bob.server.leases:
        for process in processes_of(lease_id):
            process.kill()
    subprocess.run(["umount", "--lazy", str(bob.data)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as out:
        for size in (65536, 4096, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                continue
    return ballast


def test_full_disk_takes_nothing_new_and_what_runs_goes_on(bob: Bob, server: FakeServer, small_disk: Path) -> None:
    bob.enrol()
    bob.start()
    began = time.monotonic()
    cores = bob.devices()
    running = server.give(bob.assignment(*python(UNTIL_GO + "\nprint('x' * 100000)"), device_uuids=cores))
    until_running(running)
    let_go_path = bob.folder.lease(running.assignment.lease_id) / "work" / "go"
    ballast = fill(small_disk)
    refused = server.give(bob.assignment(*python("print('new')"), device_uuids=cores))
    time.sleep(2)
    assert refused.report is None
    assert processes_of(running.assignment.lease_id)
    assert running.report is not None
    assert running.report.state is AttemptState.RUNNING
    del server.leases[refused.assignment.lease_id]
    advice = "The journal could not be written. Free space on the disk"
    eventually(lambda: advice in bob.log_text(), "the operator is told")
    ballast.unlink()
    let_go_path.touch()
    assert until_ended(running) is Reason.COMPLETED
    check_bill(running, seconds_max=time.monotonic() - began)
    after = server.give(bob.assignment(*python("print('new')"), device_uuids=cores))
    assert until_ended(after) is Reason.COMPLETED


def test_program_that_ends_on_a_full_disk_has_its_exit_code(bob: Bob, server: FakeServer, small_disk: Path) -> None:
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python("import time; print(1, flush=True); time.sleep(3); exit(9)")))
    until_running(lease)
    ballast = fill(small_disk)
    eventually(lambda: not processes_of(lease.assignment.lease_id), "the program's end")
    time.sleep(1)
    ballast.unlink()
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end")
    assert lease.report is not None
    assert (lease.report.reason, lease.report.exit_code) in {(Reason.EXIT_NONZERO, 9), (Reason.DISK_FULL, 9)}


@pytest.mark.parametrize("small_disk", [64 * 1024 * 1024], indirect=True)  # the journal takes little of it
@pytest.mark.parametrize("code", [0, 9])
def test_program_that_fills_the_nodes_disk_by_itself_has_failed_by_itself(
    bob: Bob, server: FakeServer, small_disk: Path, code: int
) -> None:
    """Else it is free: a program that has done its work, and printed it, need only leave no byte free at its end."""
    bob.enrol()
    bob.start()
    fills = f"""
import time
print(1, flush=True)
time.sleep(2)
out = open('ballast', 'ab', buffering=0)
for size in (65536, 4096, 1):
    try:
        while True:
            out.write(b'x' * size)
    except OSError:
        continue
exit({code})
"""
    lease = server.give(bob.assignment(*python(fills), device_uuids=bob.devices()))
    until_running(lease)
    work = bob.folder.lease(lease.assignment.lease_id) / "work"
    eventually((work / "ballast").exists, "it fills the disk")
    eventually(lambda: "The program filled this node's disk." in bob.log_text(), "who filled it is known")
    (work / "ballast").unlink(missing_ok=True)
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end")
    assert lease.report is not None
    assert lease.report.reason == Reason.EXIT_NONZERO


def test_receipts_above_what_was_observed_wait_quietly_and_none_is_lost(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python(UNTIL_GO)))
    lease.observed_ms = 9_000  # between the first receipt, of 5 s and however late the agent is, and the second
    until_running(lease)
    eventually(lambda: lease.receipt_refusals > 0, "a refusal")
    time.sleep(25)
    assert lease.receipts, "what lies below it was accepted"
    assert lease.receipt_refusals <= 2
    assert bob.log_text().count("Receipts were not accepted") == 1
    bob.let_go(lease.assignment.lease_id)
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end")
    lease.observed_ms = None
    assert until_ended(lease) is Reason.COMPLETED
    check_bill(lease, seconds_max=90)
