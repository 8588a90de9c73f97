"""Whether one lease's line is backed by what its node's agent signed. Pure, as `bill`, which sums the lines up.

Of each receipt: its signer, chain, contract and parties, its place in the chain, and that its amount is rate x time. Of
the line: that it charges min(signed, seen + one heartbeat), by the rule of its ending, at the locked price, up to its
cap.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from jobs.payment.terms import USD, Payment
from jobs.wire import BillLine
from provider_agent.protocol import (
    BEAT_SECONDS_LEASED,
    NO_CONTRACT,
    REASONS,
    ZERO_HASH,
    Billable,
    ReceiptParties,
    SignedReceipt,
    charge,
    receipt_digest,
    recover_receipt_signer,
)

HEARTBEAT_MS: Final = BEAT_SECONDS_LEASED * 1000  # what an agent may know before the marketplace saw it
_RULES: Final = {reason.value: outcome.billable for reason, outcome in REASONS.items()}


class Broken(Exception):
    """One check failed; the message says which."""


def check_lease(line: BillLine, job_id: UUID, *, asset: str) -> int:
    """Check everything that one lease's line says by itself; how many receipts that was. Raises Broken."""
    if (line.payment.asset if line.payment else USD) != asset:
        raise Broken(f"{name_of(line)} is paid in another asset than {asset}")
    if line.payment and (line.payment.rate_per_hour, line.payment.cap) != (line.rate_units_per_hour, line.cap_units):
        raise Broken(f"{name_of(line)} has another rate or cap than the terms that its node was given")
    for position, signed in enumerate(line.receipts):
        _check_receipt(line, job_id, position, signed)
    _check_claim(line)
    _check_time(line)
    _check_charge(line)
    return len(line.receipts)


def _check_receipt(line: BillLine, job_id: UUID, position: int, signed: SignedReceipt) -> None:
    receipt = signed.receipt
    name = f"receipt {position + 1} of lease {line.lease_id} ({line.node_name})"
    domain = line.payment.domain if line.payment else NO_CONTRACT
    parties = line.payment.parties if line.payment else ReceiptParties()
    if receipt.job_id != job_id or receipt.lease_id != line.lease_id:
        raise Broken(f"{name} is for another job or lease")
    for party, address in parties.model_dump().items():
        if getattr(receipt, party).lower() != address.lower():
            raise Broken(f"{name} names another {party} than the lease's terms")
    if receipt.seq != position + 1:
        raise Broken(f"{name} has sequence {receipt.seq}: a receipt is missing or repeated")
    previous = line.receipts[position - 1].receipt if position else None
    if receipt.prev_digest != (receipt_digest(previous, domain) if previous else ZERO_HASH):
        raise Broken(f"{name} does not follow the one before it: the chain of digests is broken")
    try:
        signer = recover_receipt_signer(signed, domain, in_any_form=True)
    except ValueError as error:
        raise Broken(f"{name} carries no valid signature") from error
    if signer.lower() != line.receipt_address.lower():
        raise Broken(f"{name} is signed by {signer}, not by the node's key {line.receipt_address}")
    if previous and receipt.billable_ms < previous.billable_ms:
        raise Broken(f"{name} claims less time than an earlier one")
    due = charge(line.rate_units_per_hour, receipt.billable_ms)
    if receipt.cumulative_amount != due:
        raise Broken(f"{name} claims {receipt.cumulative_amount} {_units(line)} where rate x time is {due}")
    if line.cap_units is not None and receipt.cumulative_amount > line.cap_units:
        raise Broken(f"{name} claims more than the lease's cap of {line.cap_units}")


def _check_claim(line: BillLine) -> None:
    newest = line.receipts[-1].receipt if line.receipts else None
    claimed_ms, claimed = (newest.billable_ms, newest.cumulative_amount) if newest else (0, 0)
    if (line.claimed_ms, line.claimed_units) != (claimed_ms, claimed):
        raise Broken(f"{name_of(line)} states another claim than its newest receipt")
    in_dollars = charge(line.rate_usd_micros_per_hour, claimed_ms)
    is_capped = line.payment is not None and line.claimed_usd_micros <= in_dollars  # by the dollars of its cap
    if line.claimed_usd_micros != in_dollars and not is_capped:
        raise Broken(f"{name_of(line)} states another claim than its newest receipt")


def _check_time(line: BillLine) -> None:
    """What is billed is min(signed, seen + one heartbeat), or less where the ending's rule says so."""
    name = name_of(line)
    if not 0 <= line.billable_ms <= line.claimed_ms:
        raise Broken(f"{name} bills {line.billable_ms} ms where the receipts claim {line.claimed_ms} ms")
    if line.billable_ms > line.observed_ms + HEARTBEAT_MS:
        raise Broken(f"{name} bills {line.billable_ms} ms where the marketplace saw {line.observed_ms} ms")
    rule = _RULES.get(line.reason)
    if not line.is_ended or line.charged_seq is None or rule is None:
        return
    if not 0 <= line.charged_seq <= len(line.receipts):
        raise Broken(f"{name} was charged by receipt {line.charged_seq}, which is not there")
    signed_ms = line.receipts[line.charged_seq - 1].receipt.billable_ms if line.charged_seq else 0
    due = min(signed_ms, line.observed_ms + HEARTBEAT_MS)
    if rule == Billable.NOTHING:
        due = 0
    elif rule == Billable.CHECKPOINT:
        due = min(due, line.checkpoint_ms or 0)
    due -= min(max(0, line.unpaid_ms), due)
    if line.billable_ms != due:
        raise Broken(f"{name} bills {line.billable_ms} ms; by the rule for {line.reason} it is {due} ms")


def _check_charge(line: BillLine) -> None:
    name = name_of(line)
    due, due_usd = (
        charge(line.rate_units_per_hour, line.billable_ms),
        charge(line.rate_usd_micros_per_hour, line.billable_ms),
    )
    if not 0 <= line.charge_units <= due:
        raise Broken(f"{name} charges more than its rate x billed time")
    if line.cap_units is not None and line.charge_units != min(due, line.cap_units):
        raise Broken(f"{name} charges {line.charge_units} {_units(line)} where {min(due, line.cap_units)} are due")
    if not 0 <= line.charge_usd_micros <= due_usd:
        raise Broken(f"{name} charges more than its rate x billed time in dollars")
    if line.payment is None and line.charge_usd_micros != line.charge_units:
        raise Broken(f"{name} charges other dollars than micro-dollars")
    refunds = (line.claimed_units - line.charge_units, line.claimed_usd_micros - line.charge_usd_micros)
    if (line.refunded_units, line.refunded_usd_micros) != refunds:
        raise Broken(f"{name} refunds something else than claim less charge")


def check_price(line: BillLine, payment: Payment) -> None:
    """That the rate in base units is the one in dollars at this price, rounded down; raises Broken."""
    due = payment.units_down(line.rate_usd_micros_per_hour)
    if line.rate_units_per_hour != due:
        raise Broken(f"{name_of(line)} has a rate of {line.rate_units_per_hour} where the locked price makes it {due}")


def name_of(line: BillLine) -> str:
    """How a problem names the line."""
    return f"the line of lease {line.lease_id} ({line.node_name})"


def _units(line: BillLine) -> str:
    return f"base units of {line.payment.asset}" if line.payment else "micro-USD"
