"""Whether a bill is backed by what the nodes' agents signed. Pure: no server, no key, nobody believed but arithmetic.

Each line is checked by `lease`. Of the whole: that lines, fee and what goes back add up to the hold, to the unit.
The customer's bill and the provider's earnings are checked by the same lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.client.verify.escrow import bill_problem, earnings_problem
from jobs.client.verify.lease import Broken, check_lease, check_price, name_of
from jobs.payment.price_rules import BPS_WHOLE, units_due
from jobs.payment.terms import USD, USD_MICROS_PER_DOLLAR, Payment
from jobs.wire import BillLine, BillView, EarningsLine, EarningsView, PriceView


@dataclass(frozen=True)
class Verification:
    """`problem` is the first thing that fails, in words; None: everything that was checked holds."""

    receipts: int
    lines: int
    charged_units: dict[str, int]  # asset -> what its lines charge, in its own base units: assets are never added up
    problem: str | None


def verify_bill(bill: BillView) -> Verification:
    """Check every receipt of every line, each line, then the sums; stop at the first thing that fails."""
    checked, problem = 0, None
    try:
        _check_leases_distinct(bill.lines)
        payment = _payment_of(bill)
        for line in bill.lines:
            checked += check_lease(line, bill.job_id, asset=bill.asset)
            check_price(line, _payment_at(line.price, bill))
        _check_prices(bill)
        _check_sums(bill)
        _check_settlement(bill, payment)
        _check_contract(bill_problem(bill))
    except Broken as broken:
        problem = str(broken)
    return Verification(checked, len(bill.lines), {bill.asset: bill.total_units}, problem)


def verify_earnings(earnings: EarningsView) -> Verification:
    """The provider's side of the same: every receipt, every line, its share, and the sums by asset."""
    checked, problem = 0, None
    try:
        _check_leases_distinct(earnings.lines)
        for line in earnings.lines:
            checked += check_lease(line, line.job_id, asset=line.asset)
            check_price(line, _payment_at(line.price, line))
            _check_share(line)
            _check_contract(earnings_problem(line))
        _check_paid(earnings)
    except Broken as broken:
        problem = str(broken)
    charged = _by_asset((line.asset, line.charge_units) for line in earnings.lines)
    return Verification(checked, len(earnings.lines), charged, problem)


def _payment_of(priced: BillView | EarningsLine) -> Payment:
    return _payment_at(priced.price, priced)


def _payment_at(price: PriceView | None, priced: BillView | EarningsLine) -> Payment:
    """At a price of its own, else at that of the whole."""
    price = price or priced.price
    if price is None and priced.asset != USD:
        raise Broken(f"it is in {priced.asset} and does not say at what price")
    per_token = price.usd_micros_per_token if price else USD_MICROS_PER_DOLLAR
    try:
        return Payment(priced.asset, priced.asset_scale, per_token)
    except ValueError as error:
        raise Broken(f"its price is none: {error}") from error


def _check_leases_distinct(lines: Sequence[BillLine]) -> None:
    seen = set()
    for line in lines:
        if line.lease_id in seen:
            raise Broken(f"lease {line.lease_id} is billed twice")
        seen.add(line.lease_id)


def _check_prices(bill: BillView) -> None:
    """Each line is at a price that the job had; what was charged before the last change is what its lines say."""
    if not bill.prices:
        own = next((line for line in bill.lines if line.price is not None), None)
        if own is not None:  # or any rate could be made right by a price that nothing else names
            raise Broken(f"{name_of(own)} is at a price of its own, and the bill lists no other than its own")
        return
    if bill.price is None:
        raise Broken("it is in dollars, which have no price, and lists prices")
    known = {price.usd_micros_per_token for price in bill.prices}
    for line in bill.lines:
        if line.price is not None and line.price.usd_micros_per_token not in known:
            raise Broken(f"{name_of(line)} is at a price that the job never had")
    last = bill.prices[-1]
    if bill.price.usd_micros_per_token != last.usd_micros_per_token:
        raise Broken("its price is not the last of its prices")
    before = [line for line in bill.lines if line.attempt <= last.attempts_before]
    charged = (sum(line.charge_usd_micros for line in before), sum(line.charge_units for line in before))
    if charged != (last.charged_usd_micros, last.charged_units):
        raise Broken("what was charged before the last change of its price is not what the lines say")


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
            raise Broken(f"the lines add up to {sum(lines)} {unit}, the bill says {total}")
    if not 0 <= bill.fee_units <= bill.total_units:
        raise Broken("the platform's fee is not a part of the total")
    if bill.is_final and bill.hold_units - bill.total_units != bill.released_units:
        raise Broken("total and released money do not add up to the hold")


def _check_settlement(bill: BillView, payment: Payment) -> None:
    """The split of the hold: each lease's fee rounded down, the rest of its charge paid, the rest of the hold back."""
    in_dollars = (
        ("fee", bill.fee_units, bill.fee_usd_micros),
        ("hold", bill.hold_units, bill.hold_usd_micros),
        ("released money", bill.released_units, bill.released_usd_micros),
    )
    for name, units, usd_micros in in_dollars:
        if payment.usd_micros(units) != usd_micros:
            raise Broken(f"the {name} of {units} {payment.asset} units is not {usd_micros} micro-USD")
    if bill.hold_units and bill.cap_usd_micros is not None and bill.is_final:
        due = _hold_due(bill, bill.cap_usd_micros, payment)
        if bill.hold_units != due:
            raise Broken(f"the hold is {bill.hold_units} units; the cap of {bill.cap_usd_micros} micro-USD is {due}")
    if bill.settlement is None or bill.fee_bps is None:
        return
    fee = sum(_fee(line.charge_units, bill.fee_bps) for line in bill.lines)
    if bill.fee_units != fee:
        raise Broken(f"the platform's fee is {bill.fee_units} units; {bill.fee_bps} basis points are {fee}")
    parts = {
        "held": bill.hold_units,
        "charged": bill.total_units,
        "fee": fee,
        "paid": bill.total_units - fee,
        "refunded": bill.released_units,
    }
    expected: dict[str, object] = {"fee_bps": bill.fee_bps}
    for name, units in parts.items():
        expected |= {f"{name}_units": str(units), f"{name}_usd_micros": payment.usd_micros(units)}
    for name, value in expected.items():
        if bill.settlement.get(name, value) != value:
            raise Broken(f"the settlement says {name} {bill.settlement[name]} where the bill makes it {value}")


def _check_contract(problem: str | None) -> None:
    if problem is not None:
        raise Broken(problem)


def _check_share(line: EarningsLine) -> None:
    if line.fee_bps is None:
        if (line.fee_units, line.paid_units) != (0, 0):
            raise Broken(f"{name_of(line)} is paid before its job is settled")
        return
    fee = _fee(line.charge_units, line.fee_bps)
    if (line.fee_units, line.paid_units) != (fee, line.charge_units - fee):
        raise Broken(f"{name_of(line)} pays {line.paid_units} units; charge less fee is {line.charge_units - fee}")


def _check_paid(earnings: EarningsView) -> None:
    found = _by_asset((line.asset, line.paid_units) for line in earnings.lines)
    if found != earnings.paid_units:
        raise Broken(f"the lines pay {found}, the sums say {earnings.paid_units}")
    for line in earnings.lines:
        if not earnings.since <= line.ended_at < earnings.until:
            raise Broken(f"{name_of(line)} did not end in the time of this file")


def _by_asset(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Sums of base units, one an asset."""
    sums: dict[str, int] = {}
    for asset, units in amounts:
        sums[asset] = sums.get(asset, 0) + units
    return sums


def _fee(charged: int, fee_bps: int) -> int:
    return charged * fee_bps // BPS_WHOLE
