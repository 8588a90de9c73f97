"""Whether a bill is backed by what the nodes' agents signed. Pure: the customer believes nobody but the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.wire import BillLine, BillView
from provider_agent.protocol import ZERO_HASH, SignedReceipt, charge, receipt_digest, recover_receipt_signer


@dataclass(frozen=True)
class Verification:
    """`problem` is the first thing that fails, in words; None: everything that was checked holds."""

    receipts: int
    lines: int
    total_usd_micros: int
    problem: str | None


class _Broken(Exception):
    """One check failed; the message says which."""


def verify_bill(bill: BillView) -> Verification:
    """Check every receipt of every line, each line, then the sums; stop at the first thing that fails."""
    checked = 0
    problem = None
    try:
        _check_leases_distinct(bill)
        for line in bill.lines:
            for position, signed in enumerate(line.receipts):
                _check_receipt(bill, line, position, signed)
                checked += 1
            _check_line(line)
        _check_sums(bill)
    except _Broken as broken:
        problem = str(broken)
    return Verification(checked, len(bill.lines), bill.total_usd_micros, problem)


def _check_leases_distinct(bill: BillView) -> None:
    seen = set()
    for line in bill.lines:
        if line.lease_id in seen:
            raise _Broken(f"lease {line.lease_id} is billed twice")
        seen.add(line.lease_id)


def _check_receipt(bill: BillView, line: BillLine, position: int, signed: SignedReceipt) -> None:
    receipt = signed.receipt
    name = f"receipt {position + 1} of lease {line.lease_id} ({line.node_name})"
    if receipt.job_id != bill.job_id or receipt.lease_id != line.lease_id:
        raise _Broken(f"{name} is for another job or lease")
    if receipt.seq != position + 1:
        raise _Broken(f"{name} has sequence {receipt.seq}: a receipt is missing or repeated")
    previous = line.receipts[position - 1].receipt if position else None
    if receipt.prev_digest != (receipt_digest(previous) if previous else ZERO_HASH):
        raise _Broken(f"{name} does not follow the one before it: the chain of digests is broken")
    try:
        signer = recover_receipt_signer(signed)
    except ValueError as error:
        raise _Broken(f"{name} carries no valid signature") from error
    if signer.lower() != line.receipt_address.lower():
        raise _Broken(f"{name} is signed by {signer}, not by the node's key {line.receipt_address}")
    if previous and receipt.billable_ms < previous.billable_ms:
        raise _Broken(f"{name} takes back time that an earlier one claims")
    due = charge(line.rate_usd_micros_per_hour, receipt.billable_ms)
    if receipt.cumulative_amount != due:
        raise _Broken(f"{name} claims {receipt.cumulative_amount} micro-USD where rate x time is {due}")


def _check_line(line: BillLine) -> None:
    name = f"the line of lease {line.lease_id} ({line.node_name})"
    newest = line.receipts[-1].receipt if line.receipts else None
    claimed_ms, claimed = (newest.billable_ms, newest.cumulative_amount) if newest else (0, 0)
    if (line.claimed_ms, line.claimed_usd_micros) != (claimed_ms, claimed):
        raise _Broken(f"{name} states another claim than its newest receipt")
    if not 0 <= line.billable_ms <= claimed_ms:
        raise _Broken(f"{name} bills {line.billable_ms} ms where the receipts claim {claimed_ms} ms")
    if not 0 <= line.charge_usd_micros <= charge(line.rate_usd_micros_per_hour, line.billable_ms):
        raise _Broken(f"{name} charges more than its rate x billed time")
    if line.refunded_usd_micros != line.claimed_usd_micros - line.charge_usd_micros:
        raise _Broken(f"{name} refunds something else than claim less charge")


def _check_sums(bill: BillView) -> None:
    total = sum(line.charge_usd_micros for line in bill.lines)
    if total != bill.total_usd_micros:
        raise _Broken(f"the lines add up to {total} micro-USD, the bill says {bill.total_usd_micros}")
    if not 0 <= bill.fee_usd_micros <= bill.total_usd_micros:
        raise _Broken("the platform's fee is not a part of the total")
    if bill.is_final and bill.hold_usd_micros - bill.total_usd_micros != bill.released_usd_micros:
        raise _Broken("total and released money do not add up to the hold")
