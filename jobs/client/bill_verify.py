"""Whether a bill is backed by what the nodes' agents signed. Pure: no server, no key, nobody believed but arithmetic.

Of each receipt: its signer, chain, contract and parties, its place in the chain, and that its amount is rate x time. Of
each line: that it charges min(signed, seen + one heartbeat), by the rule of its ending, up to its cap. Of the whole:
that lines, fee and what goes back add up to the hold, to the unit. The customer's bill and the provider's earnings are
checked by the same lines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from jobs.client.escrow_verify import bill_problem, earnings_problem
from jobs.payment import USD, USD_MICROS_PER_DOLLAR, Payment
from jobs.price_rules import units_due
from jobs.wire import BillLine, BillView, EarningsLine, EarningsView, PriceView
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
BPS_WHOLE: Final = 10_000
_RULES: Final = {reason.value: outcome.billable for reason, outcome in REASONS.items()}


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
    checked, problem = 0, None
    try:
        _check_leases_distinct(bill.lines)
        payment = _payment_of(bill)
        for line in bill.lines:
            checked += _check_lease(line, bill.job_id, asset=bill.asset)
            _check_price(line, _payment_at(line.price, bill))
        _check_prices(bill)
        _check_sums(bill)
        _check_settlement(bill, payment)
        _check_contract(bill_problem(bill))
    except _Broken as broken:
        problem = str(broken)
    return Verification(checked, len(bill.lines), bill.total_usd_micros, problem)


def verify_earnings(earnings: EarningsView) -> Verification:
    """The provider's side of the same: every receipt, every line, its share, and the sums by asset."""
    checked, problem = 0, None
    try:
        _check_leases_distinct(earnings.lines)
        for line in earnings.lines:
            checked += _check_lease(line, line.job_id, asset=line.asset)
            _check_price(line, _payment_at(line.price, line))
            _check_share(line)
            _check_contract(earnings_problem(line))
        _check_paid(earnings)
    except _Broken as broken:
        problem = str(broken)
    total = sum(line.charge_usd_micros for line in earnings.lines)
    return Verification(checked, len(earnings.lines), total, problem)


def _payment_of(priced: BillView | EarningsLine) -> Payment:
    return _payment_at(priced.price, priced)


def _payment_at(price: PriceView | None, priced: BillView | EarningsLine) -> Payment:
    """At a price of its own, else at that of the whole."""
    price = price or priced.price
    if price is None and priced.asset != USD:
        raise _Broken(f"it is in {priced.asset} and does not say at what price")
    per_token = price.usd_micros_per_token if price else USD_MICROS_PER_DOLLAR
    try:
        return Payment(priced.asset, priced.asset_scale, per_token)
    except ValueError as error:
        raise _Broken(f"its price is none: {error}") from error


def _check_leases_distinct(lines: Sequence[BillLine]) -> None:
    seen = set()
    for line in lines:
        if line.lease_id in seen:
            raise _Broken(f"lease {line.lease_id} is billed twice")
        seen.add(line.lease_id)


def _check_lease(line: BillLine, job_id: UUID, *, asset: str) -> int:
    """Everything that one lease's line says by itself; how many receipts that was."""
    if (line.payment.asset if line.payment else USD) != asset:
        raise _Broken(f"{_name(line)} is paid in another asset than {asset}")
    if line.payment and (line.payment.rate_per_hour, line.payment.cap) != (line.rate_units_per_hour, line.cap_units):
        raise _Broken(f"{_name(line)} has another rate or cap than the terms that its node was given")
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
        raise _Broken(f"{name} is for another job or lease")
    for party, address in parties.model_dump().items():
        if getattr(receipt, party).lower() != address.lower():
            raise _Broken(f"{name} names another {party} than the lease's terms")
    if receipt.seq != position + 1:
        raise _Broken(f"{name} has sequence {receipt.seq}: a receipt is missing or repeated")
    previous = line.receipts[position - 1].receipt if position else None
    if receipt.prev_digest != (receipt_digest(previous, domain) if previous else ZERO_HASH):
        raise _Broken(f"{name} does not follow the one before it: the chain of digests is broken")
    try:
        signer = recover_receipt_signer(signed, domain)
    except ValueError as error:
        raise _Broken(f"{name} carries no valid signature") from error
    if signer.lower() != line.receipt_address.lower():
        raise _Broken(f"{name} is signed by {signer}, not by the node's key {line.receipt_address}")
    if previous and receipt.billable_ms < previous.billable_ms:
        raise _Broken(f"{name} takes back time that an earlier one claims")
    due = charge(line.rate_units_per_hour, receipt.billable_ms)
    if receipt.cumulative_amount != due:
        raise _Broken(f"{name} claims {receipt.cumulative_amount} {_units(line)} where rate x time is {due}")
    if line.cap_units is not None and receipt.cumulative_amount > line.cap_units:
        raise _Broken(f"{name} claims more than the lease's cap of {line.cap_units}")


def _check_claim(line: BillLine) -> None:
    newest = line.receipts[-1].receipt if line.receipts else None
    claimed_ms, claimed = (newest.billable_ms, newest.cumulative_amount) if newest else (0, 0)
    if (line.claimed_ms, line.claimed_units) != (claimed_ms, claimed):
        raise _Broken(f"{_name(line)} states another claim than its newest receipt")
    in_dollars = charge(line.rate_usd_micros_per_hour, claimed_ms)
    is_capped = line.payment is not None and line.claimed_usd_micros <= in_dollars  # by the dollars of its cap
    if line.claimed_usd_micros != in_dollars and not is_capped:
        raise _Broken(f"{_name(line)} states another claim than its newest receipt")


def _check_time(line: BillLine) -> None:
    """What is billed is min(signed, seen + one heartbeat), or less where the ending's rule says so."""
    name = _name(line)
    if not 0 <= line.billable_ms <= line.claimed_ms:
        raise _Broken(f"{name} bills {line.billable_ms} ms where the receipts claim {line.claimed_ms} ms")
    if line.billable_ms > line.observed_ms + HEARTBEAT_MS:
        raise _Broken(f"{name} bills {line.billable_ms} ms where the marketplace saw {line.observed_ms} ms")
    rule = _RULES.get(line.reason)
    if not line.is_ended or line.charged_seq is None or rule is None:
        return
    if not 0 <= line.charged_seq <= len(line.receipts):
        raise _Broken(f"{name} was charged by receipt {line.charged_seq}, which is not there")
    signed_ms = line.receipts[line.charged_seq - 1].receipt.billable_ms if line.charged_seq else 0
    due = min(signed_ms, line.observed_ms + HEARTBEAT_MS)
    if rule == Billable.NOTHING:
        due = 0
    elif rule == Billable.CHECKPOINT:
        due = min(due, line.checkpoint_ms or 0)
    if line.billable_ms != due:
        raise _Broken(f"{name} bills {line.billable_ms} ms; by the rule for {line.reason} it is {due} ms")


def _check_charge(line: BillLine) -> None:
    name = _name(line)
    due, due_usd = (
        charge(line.rate_units_per_hour, line.billable_ms),
        charge(line.rate_usd_micros_per_hour, line.billable_ms),
    )
    if not 0 <= line.charge_units <= due:
        raise _Broken(f"{name} charges more than its rate x billed time")
    if line.cap_units is not None and line.charge_units != min(due, line.cap_units):
        raise _Broken(f"{name} charges {line.charge_units} {_units(line)} where {min(due, line.cap_units)} are due")
    if not 0 <= line.charge_usd_micros <= due_usd:
        raise _Broken(f"{name} charges more than its rate x billed time in dollars")
    if line.payment is None and line.charge_usd_micros != line.charge_units:
        raise _Broken(f"{name} charges other dollars than micro-dollars")
    refunds = (line.claimed_units - line.charge_units, line.claimed_usd_micros - line.charge_usd_micros)
    if (line.refunded_units, line.refunded_usd_micros) != refunds:
        raise _Broken(f"{name} refunds something else than claim less charge")


def _check_price(line: BillLine, payment: Payment) -> None:
    due = payment.units_down(line.rate_usd_micros_per_hour)
    if line.rate_units_per_hour != due:
        raise _Broken(f"{_name(line)} has a rate of {line.rate_units_per_hour} where the locked price makes it {due}")


def _check_prices(bill: BillView) -> None:
    """Each line is at a price that the job had; what was charged before the last change is what its lines say."""
    if not bill.prices or bill.price is None:
        return
    known = {price.usd_micros_per_token for price in bill.prices}
    for line in bill.lines:
        if line.price is not None and line.price.usd_micros_per_token not in known:
            raise _Broken(f"{_name(line)} is at a price that the job never had")
    last = bill.prices[-1]
    if bill.price.usd_micros_per_token != last.usd_micros_per_token:
        raise _Broken("its price is not the last of its prices")
    before = [line for line in bill.lines if line.attempt <= last.attempts_before]
    charged = (sum(line.charge_usd_micros for line in before), sum(line.charge_units for line in before))
    if charged != (last.charged_usd_micros, last.charged_units):
        raise _Broken("what was charged before the last change of its price is not what the lines say")


def _hold_due(bill: BillView, cap_usd_micros: int, payment: Payment) -> int:
    """What a cap holds: what a wallet signed at the first price, else at the last one, with what was charged before."""
    if bill.escrow is not None and bill.prices:
        return payment.at(bill.prices[0].usd_micros_per_token).units_up(cap_usd_micros)
    last = bill.prices[-1] if bill.prices else None
    charged_usd, charged = (last.charged_usd_micros, last.charged_units) if last else (0, 0)
    return units_due(payment, cap_usd_micros, charged_usd_micros=charged_usd, charged_units=charged)


def _check_sums(bill: BillView) -> None:
    for unit, lines, total in (
        ("micro-USD", [line.charge_usd_micros for line in bill.lines], bill.total_usd_micros),
        (f"base units of {bill.asset}", [line.charge_units for line in bill.lines], bill.total_units),
    ):
        if sum(lines) != total:
            raise _Broken(f"the lines add up to {sum(lines)} {unit}, the bill says {total}")
    if not 0 <= bill.fee_units <= bill.total_units:
        raise _Broken("the platform's fee is not a part of the total")
    if bill.is_final and bill.hold_units - bill.total_units != bill.released_units:
        raise _Broken("total and released money do not add up to the hold")


def _check_settlement(bill: BillView, payment: Payment) -> None:
    """The split of the hold: each lease's fee rounded down, the rest of its charge paid, the rest of the hold back."""
    in_dollars = (
        ("fee", bill.fee_units, bill.fee_usd_micros),
        ("hold", bill.hold_units, bill.hold_usd_micros),
        ("released money", bill.released_units, bill.released_usd_micros),
    )
    for name, units, usd_micros in in_dollars:
        if payment.usd_micros(units) != usd_micros:
            raise _Broken(f"the {name} of {units} {payment.asset} units is not {usd_micros} micro-USD")
    if bill.hold_units and bill.cap_usd_micros is not None and bill.is_final:
        due = _hold_due(bill, bill.cap_usd_micros, payment)
        if bill.hold_units != due:
            raise _Broken(f"the hold is {bill.hold_units} units; the cap of {bill.cap_usd_micros} micro-USD is {due}")
    if bill.settlement is None or bill.fee_bps is None:
        return
    fee = sum(_fee(line.charge_units, bill.fee_bps) for line in bill.lines)
    if bill.fee_units != fee:
        raise _Broken(f"the platform's fee is {bill.fee_units} units; {bill.fee_bps} basis points are {fee}")
    parts = {
        "held": bill.hold_units,
        "charged": bill.total_units,
        "fee": fee,
        "paid": bill.total_units - fee,
        "refunded": bill.released_units,
    }
    said: dict[str, object] = {"fee_bps": bill.fee_bps}
    for name, units in parts.items():
        said |= {f"{name}_units": str(units), f"{name}_usd_micros": payment.usd_micros(units)}
    for name, value in said.items():
        if bill.settlement.get(name, value) != value:
            raise _Broken(f"the settlement says {name} {bill.settlement[name]} where the bill makes it {value}")


def _check_contract(problem: str | None) -> None:
    if problem is not None:
        raise _Broken(problem)


def _check_share(line: EarningsLine) -> None:
    if line.fee_bps is None:
        if (line.fee_units, line.paid_units) != (0, 0):
            raise _Broken(f"{_name(line)} is paid before its job is settled")
        return
    fee = _fee(line.charge_units, line.fee_bps)
    if (line.fee_units, line.paid_units) != (fee, line.charge_units - fee):
        raise _Broken(f"{_name(line)} pays {line.paid_units} units; charge less fee is {line.charge_units - fee}")


def _check_paid(earnings: EarningsView) -> None:
    found = _paid(earnings.lines)
    if found != earnings.paid_units:
        raise _Broken(f"the lines pay {found}, the sums say {earnings.paid_units}")
    for line in earnings.lines:
        if not earnings.since <= line.ended_at < earnings.until:
            raise _Broken(f"{_name(line)} did not end in the time of this file")


def _paid(lines: Collection[EarningsLine]) -> dict[str, int]:
    paid: dict[str, int] = {}
    for line in lines:
        paid[line.asset] = paid.get(line.asset, 0) + line.paid_units
    return paid


def _fee(charged: int, fee_bps: int) -> int:
    return charged * fee_bps // BPS_WHOLE


def _name(line: BillLine) -> str:
    return f"the line of lease {line.lease_id} ({line.node_name})"


def _units(line: BillLine) -> str:
    return f"base units of {line.payment.asset}" if line.payment else "micro-USD"
