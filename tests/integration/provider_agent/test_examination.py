"""Programs fail in a row: a faulty node leaves the market and reports what to fix, a healthy one stays."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from provider_agent.context.failure_count import FAILURES_IN_A_ROW_MAX, FailureCount
from provider_agent.protocol import ATTEMPT_ENDS, Program, Reason
from tests.integration.provider_agent.conftest import Bob, eventually, python
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer


def has_ended(lease: Lease) -> bool:
    return lease.report is not None and lease.report.state in ATTEMPT_ENDS


def fail_in_a_row(bob: Bob, server: FakeServer, **changes: object) -> list[Lease]:
    """As many programs as the limit says, one after the other."""
    leases = []
    for _ in range(FAILURES_IN_A_ROW_MAX):
        lease = server.give(bob.assignment(*python("raise SystemExit(3)"), **changes))
        eventually(partial(has_ended, lease), "the end")
        leases.append(lease)
    return leases


def test_node_whose_interpreter_lost_torch_drains_itself_and_says_what_to_fix(
    bob: Bob, server: FakeServer, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(broken)], check=True)
    bob.enrol(runtime_python=str(broken / "bin" / "python"))
    bob.start()
    leases = fail_in_a_row(bob, server, program=Program(runtime="train", config={}))
    assert all(lease.report and lease.report.reason is not Reason.COMPLETED for lease in leases)
    eventually(lambda: server.drained, "leaving the market")
    assert "has no torch" in server.drained[0]
    status = json.loads(bob.run("status", "--json").stdout)
    assert "has no torch" in status["health"]
    assert status["fixes"] == [f"{broken}/bin/python -m pip install torch"]
    assert "fix: " in bob.run("status").stdout
    findings = {finding["check"]: finding for finding in json.loads(bob.run("doctor", "--json").stdout)}
    assert findings["self-test"]["verdict"] == "FIX"
    assert "souk-agent resume" in findings["self-test"]["fix"]
    assert findings["examination"] == findings["self-test"] | {"check": "examination", "deprecated": "use self-test"}
    assert status["self_test"]["is_faulty"]
    assert status["examination"] == status["self_test"], "the old name stays for one version"
    assert bob.run("resume").returncode == 0
    assert json.loads(bob.run("status", "--json").stdout)["health"] == "good"


def test_healthy_node_whose_programs_fail_goes_on(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    fail_in_a_row(bob, server)
    eventually(lambda: "the programs were at fault" in bob.log_text(), "the self-test")
    assert server.drained == []
    assert json.loads(bob.run("status", "--json").stdout)["health"] == "good"
    lease = server.give(bob.assignment(*python("print(1)")))
    eventually(lambda: lease.report and lease.report.reason is Reason.COMPLETED, "the next program")


def test_a_success_and_a_customers_cancel_are_no_failures_in_a_row() -> None:
    count = FailureCount()
    for reason in [Reason.EXIT_NONZERO, Reason.INTERNAL, Reason.COMPLETED, Reason.EXIT_NONZERO, Reason.NODE_SILENT]:
        count.note(reason)
    assert (count.in_a_row, count.reached.is_set()) == (1, False)
    count.note(Reason.CANCELLED_BY_CUSTOMER)
    count.note(Reason.DISK_FULL)
    count.note(Reason.OUT_OF_MEMORY)
    assert count.reached.is_set()
