"""Bob's agent as a process against a marketplace: what it runs, survives and refuses."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from provider_agent import protocol
from provider_agent.protocol import ZERO_HASH, AttemptState, Reason
from runtimes.contract import MANIFEST_NAME
from tests.integration.provider_agent.conftest import Bob, eventually, processes_of, python
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = pytest.mark.slow

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
# In the middle of a program, after its first line: it goes on when `let_go` says so, however late this test is.
AWAIT_GO = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)\nos.remove('go')\n"
SAVES_ON_STOP = (  # as our trainer does, in a moment
    "import os, pathlib, signal, sys, time\n"
    f"sys.path.insert(0, {str(Path.cwd())!r})\n"
    "from runtimes import contract\n"
    "def leave(*_):\n"
    "    folder = contract.checkpoint_folder(pathlib.Path(os.environ['SOUK_CHECKPOINT_DIR']), 5)\n"
    "    folder.mkdir(); (folder / 'w').write_text('x'); contract.write_manifest(folder, step=5); sys.exit(75)\n"
    "signal.signal(signal.SIGTERM, leave); print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start()
    return bob


def until_running(lease: Lease) -> None:
    """Reported as running, which any program is after a second, and its first line is printed."""
    eventually(lambda: lease.report and lease.report.state is AttemptState.RUNNING, "running")
    eventually(lambda: lease.logs, "the program's first line")


def test_program_runs_and_its_log_events_output_and_receipts_arrive(running: Bob, server: FakeServer) -> None:
    code = (
        f"print('hello', flush=True)\n{AWAIT_GO}"
        "open(os.environ['SOUK_EVENTS'], 'a').write('{\"event\":\"step\",\"step\":1}\\n');"
        "open(os.environ['SOUK_OUTPUT_DIR'] + '/model.bin', 'wb').write(b'x' * 2500); print('done')"
    )
    began = time.monotonic()
    lease = server.give(running.assignment(*python(code)))
    until_running(lease)
    time.sleep(1.2)
    running.let_go(lease.assignment.lease_id)
    report = until_ended(lease)
    assert (report.state, report.reason, report.exit_code) == (AttemptState.SUCCEEDED, Reason.COMPLETED, 0)
    assert lease.logs == b"hello\ndone\n"
    assert json.loads(lease.events)["step"] == 1
    output = next(artifact for artifact in server.artifacts.values() if artifact.begin.kind == "output")
    assert output.is_complete
    assert output.files["model.bin"] == b"x" * 2500
    assert 1000 <= report.billable_ms < (time.monotonic() - began) * 1000


def test_output_is_complete_before_success_is_reported(running: Bob, server: FakeServer) -> None:
    code = "import os; open(os.environ['SOUK_OUTPUT_DIR'] + '/a', 'w').write('a')"
    server.fail_with["/artifacts"] = 503
    lease = server.give(running.assignment(*python(code)))
    eventually(lambda: lease.report and lease.report.state is AttemptState.STOPPING, "waiting for the upload")
    time.sleep(1)
    assert lease.report is not None
    assert lease.report.state is AttemptState.STOPPING
    server.fail_with.clear()
    assert until_ended(lease).state is AttemptState.SUCCEEDED
    assert any(artifact.is_complete for artifact in server.artifacts.values())


def test_refused_output_is_upload_failed(running: Bob, server: FakeServer) -> None:
    server.fail_with["/artifacts"] = 413
    code = "import os; open(os.environ['SOUK_OUTPUT_DIR'] + '/a', 'w').write('a')"
    report = until_ended(server.give(running.assignment(*python(code))))
    assert (report.state, report.reason) == (AttemptState.FAILED, Reason.UPLOAD_FAILED)


def test_output_with_names_that_can_never_be_taken_is_the_customers_own_doing(running: Bob, server: FakeServer) -> None:
    server.fail_with["/artifacts"] = 400
    code = "import os; open(os.environ['SOUK_OUTPUT_DIR'] + '/a', 'w').write('a')"
    report = until_ended(server.give(running.assignment(*python(code))))
    assert (report.state, report.reason) == (AttemptState.FAILED, Reason.EXIT_NONZERO)


def test_failing_program_ends_with_its_exit_code(running: Bob, server: FakeServer) -> None:
    report = until_ended(server.give(running.assignment(*python("raise SystemExit(3)"))))
    assert (report.state, report.reason, report.exit_code) == (AttemptState.FAILED, Reason.EXIT_NONZERO, 3)


def test_unknown_command_fails_with_a_clear_log(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment("/no/such/program"))
    assert until_ended(lease).reason is Reason.EXIT_NONZERO
    assert b"cannot start /no/such/program" in lease.logs


def test_receipts_are_gapless_chained_signed_and_capped(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(SLEEP), cap_usd_micros=1_500_000))
    eventually(lambda: lease.report and lease.report.billable_ms == 1500, "the cap")
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    report = until_ended(lease)
    address = server.nodes[running.node_id()].receipt_address
    previous = ZERO_HASH
    for number, signed in enumerate(lease.receipts, start=1):
        receipt = signed.receipt
        assert receipt.seq == number
        assert receipt.prev_digest == previous
        assert protocol.recover_receipt_signer(signed) == address
        charged = protocol.charge(lease.assignment.rate_usd_micros_per_hour, receipt.billable_ms)
        assert receipt.cumulative_amount == min(charged, 1_500_000)
        previous = protocol.receipt_digest(receipt)
    assert lease.receipts[-1].receipt.billable_ms == report.billable_ms
    assert lease.receipts[-1].receipt.cumulative_amount == 1_500_000


def test_receipts_of_a_lease_in_a_token_name_its_chain_contract_and_parties(running: Bob, server: FakeServer) -> None:
    wei = 10**18  # of them a millisecond: far beyond what 64 bits hold
    terms = protocol.PaymentTerms(
        asset="WETH",
        token="0x" + "a1" * 20,
        chain_id=31337,
        contract="0x" + "c1" * 20,
        provider="0x" + "b1" * 20,
        customer="0x" + "d1" * 20,
        rate_per_hour=3_600_000 * wei,
        cap=1500 * wei,
    )
    lease = server.give(running.assignment(*python(SLEEP), payment=terms))
    eventually(lambda: lease.report and lease.report.billable_ms == 1500, "the cap, in the token")
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    until_ended(lease)
    address, previous = server.nodes[running.node_id()].receipt_address, ZERO_HASH
    for signed in lease.receipts:
        receipt = signed.receipt
        assert (receipt.provider, receipt.customer, receipt.asset) == (terms.provider, terms.customer, terms.token)
        assert protocol.recover_receipt_signer(signed, terms.domain) == address
        assert protocol.recover_receipt_signer(signed) != address  # without its domain it is worth nothing
        assert (receipt.cumulative_amount, receipt.prev_digest) == (receipt.billable_ms * wei, previous)
        previous = protocol.receipt_digest(receipt, terms.domain)
    assert lease.receipts[-1].receipt.cumulative_amount == terms.cap


def test_stop_waits_for_the_grace_then_kills(running: Bob, server: FakeServer) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
    lease = server.give(running.assignment(*python(stubborn + "time.sleep(600)"), stop_grace_seconds=2))
    until_running(lease)
    began = time.monotonic()
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    report = until_ended(lease)
    assert time.monotonic() - began >= 2
    assert (report.state, report.reason) == (AttemptState.CANCELLED, Reason.CANCELLED_BY_CUSTOMER)
    assert processes_of(lease.assignment.lease_id) == []
    assert AttemptState.STOPPING in lease.states


def test_detached_children_end_with_the_program(running: Bob, server: FakeServer) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
    lease = server.give(running.assignment(*python(code)))
    assert until_ended(lease).reason is Reason.COMPLETED
    assert processes_of(lease.assignment.lease_id) == []


def test_killed_agent_is_replaced_by_one_that_adopts(running: Bob, server: FakeServer) -> None:
    code = "import os, time\nprint(1, flush=True)\nwhile not os.path.exists('go'): time.sleep(0.1)\nprint(2)"
    lease = server.give(running.assignment(*python(code)))
    until_running(lease)
    before = {process.pid for process in processes_of(lease.assignment.lease_id)}
    running.stop(signal.SIGKILL)
    running.start()
    assert {process.pid for process in processes_of(lease.assignment.lease_id)} == before
    running.let_go(lease.assignment.lease_id)
    report = until_ended(lease)
    assert report.reason is Reason.COMPLETED
    assert lease.logs == b"1\n2\n[souk] collected 1 file (go) beside output/\n"
    assert "Program adopted" in running.log_text()


def test_exit_while_the_agent_was_down_is_known(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(f"print(1, flush=True)\n{AWAIT_GO}exit(9)")))
    until_running(lease)
    running.stop(signal.SIGKILL)
    running.let_go(lease.assignment.lease_id)
    eventually(lambda: not processes_of(lease.assignment.lease_id), "the program's end")
    running.start()
    report = until_ended(lease)
    assert (report.reason, report.exit_code) == (Reason.EXIT_NONZERO, 9)


def test_vanished_program_is_lost(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(SLEEP)))
    until_running(lease)
    running.stop(signal.SIGKILL)
    for process in processes_of(lease.assignment.lease_id):
        process.kill()
    running.start()
    report = until_ended(lease)
    assert (report.state, report.reason) == (AttemptState.LOST, Reason.PROCESS_VANISHED)


def test_killed_supervisor_takes_the_program_with_it(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(SLEEP)))
    until_running(lease)
    supervisor = next(
        p for p in processes_of(lease.assignment.lease_id) if "process_supervisor.py" in " ".join(p.cmdline())
    )
    supervisor.kill()
    assert until_ended(lease).reason is Reason.PROCESS_VANISHED
    assert processes_of(lease.assignment.lease_id) == []


def test_lost_replies_change_nothing(running: Bob, server: FakeServer) -> None:
    server.lose_replies = {"/logs": 2, "/receipts": 1, "/sync": 1, "/complete": 1}
    code = (
        "import os, time\n"
        "for n in range(200): print(n, flush=True); time.sleep(0.01)\n"
        "open(os.environ['SOUK_OUTPUT_DIR'] + '/a', 'w').write('a')"
    )
    lease = server.give(running.assignment(*python(code)))
    report = until_ended(lease)
    assert report.reason is Reason.COMPLETED
    assert lease.logs == b"".join(b"%d\n" % n for n in range(200))
    assert set(server.lose_replies.values()) == {0}


def test_server_that_lost_log_bytes_gets_them_again(running: Bob, server: FakeServer) -> None:
    code = f"for n in range(15): print(n, flush=True)\n{AWAIT_GO}for n in range(15, 30): print(n, flush=True)"
    lease = server.give(running.assignment(*python(code)))
    eventually(lambda: lease.logs.endswith(b"14\n"), "the first half of the log")
    lease.logs = lease.logs[:2]
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).reason is Reason.COMPLETED
    assert lease.logs == b"".join(b"%d\n" % n for n in range(30))


def test_assignment_with_another_key_is_refused(running: Bob, server: FakeServer) -> None:
    mallory = Ed25519PrivateKey.generate()
    lease = server.give(running.assignment(*python(SLEEP)), key=mallory)
    eventually(lambda: "not signed by this marketplace" in running.log_text(), "the refusal")
    assert lease.report is None
    assert processes_of(lease.assignment.lease_id) == []


def test_assignment_for_another_node_is_refused(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(SLEEP), node_id=uuid4()))
    eventually(lambda: "for another node" in running.log_text(), "the refusal")
    assert lease.report is None


def test_stale_fence_is_refused_also_after_forgetting(running: Bob, server: FakeServer) -> None:
    running.fence = 10
    first = server.give(running.assignment(*python("print(1)")))
    until_ended(first)
    server.forget_lease(first)
    eventually(lambda: not running.folder.lease(first.assignment.lease_id).exists(), "the forgetting")
    stale = server.give(running.assignment(*python(SLEEP), fence=11))
    eventually(lambda: "is not newer than 11" in running.log_text(), "the refusal")
    assert stale.report is None


def test_newer_lease_of_a_device_ends_the_older(running: Bob, server: FakeServer) -> None:
    old = server.give(running.assignment(*python(SLEEP)))
    until_running(old)
    new = server.give(running.assignment(*python("print('mine')")))
    assert until_ended(old).reason is Reason.LEASE_EXPIRED
    assert until_ended(new).reason is Reason.COMPLETED


def test_lease_that_runs_out_stops_while_the_server_is_away(bob: Bob, server: FakeServer) -> None:
    server.lease_seconds = 5
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python(SLEEP)))
    until_running(lease)
    server.stop()
    eventually(lambda: not processes_of(lease.assignment.lease_id), "the watchdog", seconds=20)
    server.start()
    report = until_ended(lease)
    assert (report.state, report.reason) == (AttemptState.LOST, Reason.LEASE_EXPIRED)


def test_program_goes_on_while_the_server_is_away_for_a_moment(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(f"print(1, flush=True)\n{AWAIT_GO}print(2)")))
    until_running(lease)
    server.stop()
    time.sleep(2)
    server.start()
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).reason is Reason.COMPLETED
    assert lease.logs == b"1\n2\n"


def test_agent_learns_the_servers_clock(bob: Bob, server: FakeServer) -> None:
    server.clock_offset = timedelta(hours=3)
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python("print(1)")))
    assert until_ended(lease).reason is Reason.COMPLETED


def test_state_change_is_reported_at_once(bob: Bob, server: FakeServer) -> None:
    server.beat_seconds = 15
    bob.enrol()
    bob.start()
    lease = server.give(bob.assignment(*python("print(1)")))
    began = time.monotonic()
    until_ended(lease)
    assert time.monotonic() - began < 12


def test_checkpoint_is_shipped_and_inputs_arrive(running: Bob, server: FakeServer) -> None:
    given, resumed = uuid4(), uuid4()
    server.downloads[given] = {"data/train.txt": b"text"}
    server.downloads[resumed] = {"weights": b"w" * 3000, "MANIFEST.json": b"{}"}
    code = (
        "import os, pathlib, sys, time\n"
        f"sys.path.insert(0, {str(Path.cwd())!r})\n"
        "from runtimes import contract\n"
        "print(pathlib.Path('input/data/train.txt').read_text(), os.environ['SOUK_RESUME_FROM'][-13:], flush=True)\n"
        "assert (pathlib.Path(os.environ['SOUK_RESUME_FROM']) / 'weights').stat().st_size == 3000\n"
        "folder = contract.checkpoint_folder(pathlib.Path(os.environ['SOUK_CHECKPOINT_DIR']), 8)\n"
        "folder.mkdir(); (folder / 'w').write_text('new'); time.sleep(1.2); contract.write_manifest(folder, step=8)\n"
        f"{AWAIT_GO}"
    )
    lease = server.give(running.assignment(*python(code), input_artifact_id=given, resume_artifact_id=resumed))
    eventually(lambda: any(each.is_complete for each in list(server.artifacts.values())), "the checkpoint")
    running.let_go(lease.assignment.lease_id)
    report = until_ended(lease)
    assert report.reason is Reason.COMPLETED, lease.logs
    assert lease.logs == b"text step-00000007\n"
    checkpoint = next(a for a in server.artifacts.values() if a.begin.kind == "checkpoint")
    assert checkpoint.is_complete
    assert (checkpoint.begin.step, checkpoint.files["w"]) == (8, b"new")
    assert "MANIFEST.json" in checkpoint.files
    assert 0 < checkpoint.begin.billable_ms < report.billable_ms


def test_checkpoint_saved_on_stop_is_there_before_the_end(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(SAVES_ON_STOP), stop_grace_seconds=20))
    until_running(lease)
    server.stop_lease(lease, Reason.NODE_DRAINED)
    report = until_ended(lease)
    assert (report.reason, report.exit_code) == (Reason.NODE_DRAINED, 75)
    assert [a.begin.step for a in server.artifacts.values() if a.is_complete] == [5]


def test_a_machine_that_is_taken_away_saves_and_sends_first(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(SAVES_ON_STOP), stop_grace_seconds=20))
    until_running(lease)
    assert running.run("drain", "--now", "--reason", "spot notice").returncode == 0
    report = until_ended(lease)
    assert (report.reason, report.exit_code) == (Reason.NODE_DRAINED, 75)
    assert [a.begin.step for a in server.artifacts.values() if a.is_complete] == [5]
    assert server.drained == ["spot notice"]
    assert running.folder.leaving.exists()
    assert running.run("resume").returncode == 0
    assert not running.folder.leaving.exists()


def test_programs_save_before_the_machine_goes_also_without_the_server(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python(SAVES_ON_STOP), stop_grace_seconds=20))
    until_running(lease)
    server.stop()
    running.folder.leaving.touch()  # what `drain --now` does before it asks the server
    checkpoints = running.folder.lease(lease.assignment.lease_id) / "work" / "checkpoint"
    eventually(lambda: list(checkpoints.glob(f"*/{MANIFEST_NAME}")), "the checkpoint")


def test_unavailable_input_is_named(running: Bob, server: FakeServer) -> None:
    given = uuid4()
    server.downloads[given] = {"../outside": b"text"}
    report = until_ended(server.give(running.assignment(*python(SLEEP), input_artifact_id=given)))
    assert report.reason is Reason.INPUT_UNAVAILABLE
    assert not (running.data / "outside").exists()


def test_secrets_are_given_and_left_nowhere(running: Bob, server: FakeServer) -> None:
    secret = "hunter2-" + uuid4().hex
    code = f"import os\nprint(len(os.environ['TOKEN']), flush=True)\n{AWAIT_GO}"
    lease = server.give(running.assignment(*python(code), secrets={"TOKEN": secret}))
    until_running(lease)
    for path in running.data.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the agent replaces its files meanwhile
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).reason is Reason.COMPLETED
    assert lease.logs == f"{len(secret)}\n".encode()
    assert secret not in running.log_text()


def test_forgotten_lease_leaves_nothing(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python("print(1)")))
    until_ended(lease)
    server.forget_lease(lease)
    eventually(lambda: not running.folder.lease(lease.assignment.lease_id).exists(), "the forgetting")
    eventually(lambda: server.syncs[-1].leases == [], "an empty report")


def test_agent_asked_to_stop_its_work_drains(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start("--stop-work-on-exit")
    lease = server.give(bob.assignment(*python(SLEEP)))
    until_running(lease)
    assert bob.stop() == 0
    assert lease.report is not None
    assert lease.report.reason is Reason.NODE_DRAINED
    assert processes_of(lease.assignment.lease_id) == []


def test_program_gets_a_clean_environment(running: Bob, server: FakeServer) -> None:
    lease = server.give(running.assignment(*python("import os; print(sorted(os.environ))"), env={"MINE": "1"}))
    until_ended(lease)
    names = set(eval(lease.logs))
    assert {"PATH", "HOME", "LANG", "OMP_NUM_THREADS", "MINE", "SOUK_WORK_DIR", "SOUK_EVENTS"} <= names
    assert not {name for name in names if name.startswith(("PYTEST", "VIRTUAL_ENV", "SSH"))}


def test_second_agent_on_one_folder_is_refused(running: Bob) -> None:
    done = running.run("start")
    assert done.returncode == 6
    assert "Another agent runs" in done.stderr


def test_built_in_runtime_is_started_by_its_launcher(running: Bob, server: FakeServer) -> None:
    program = protocol.Program(runtime="train", config={"nonsense": True})
    lease = server.give(running.assignment(program=program))
    report = until_ended(lease)
    assert report.reason is Reason.BAD_CONFIG, (report, lease.logs[-2000:])
    assert sys.executable  # the interpreter that Bob named ran it
