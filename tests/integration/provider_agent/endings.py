"""How a test waits for the end of a lease."""

from __future__ import annotations

from provider_agent import protocol
from tests.integration.provider_agent.conftest import eventually
from tests.integration.provider_agent.fake_leases import Lease


def until_ended(lease: Lease) -> protocol.LeaseReport:
    """Wait for the lease's end, with all its bytes and receipts."""
    eventually(lambda: lease.report and lease.report.state in protocol.ATTEMPT_ENDS, "the lease's end")
    report = lease.report
    assert report is not None
    eventually(lambda: len(lease.logs) == report.log_bytes, "the last log byte")
    eventually(lambda: len(lease.events) == report.event_bytes, "the last event byte")
    eventually(lambda: len(lease.receipts) == report.receipt_seq, "the last receipt")
    return report
