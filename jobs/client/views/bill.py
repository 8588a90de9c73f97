"""The bill and the earnings, for people: one lease a line, what was claimed, what was charged, why they differ."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from jobs.client.output import money, table
from jobs.client.verify.bill import Verification
from jobs.client.verify.export import VerifiedExport
from jobs.payment.terms import USD, show_units
from jobs.wire import BillLine, BillView, EarningsView

NOT_KNOWN = "not known yet"


def bill_view(bill: BillView, verification: Verification | None) -> RenderableType:
    """The bill and, where it was asked for, what its verification found."""
    columns = ("attempt", "node", "devices", "per hour", "receipts", "claimed", "billed", "charge", "refund", "why")
    scale = bill.asset_scale
    rows = [(str(line.attempt), *_row(line, asset=bill.asset, scale=scale)) for line in bill.lines]
    title = f"Bill of job {bill.job_id}" + ("" if bill.is_final else " (so far)")
    parts: list[RenderableType] = [
        table(title, columns, rows, right=columns[2:9]),
        Text.from_markup("\n".join(_sums(bill))),
    ]
    if verification is not None:
        parts.append(Text.from_markup(_verdict(verification)))
    return Group(*parts)


def earnings_view(earnings: EarningsView, verification: Verification) -> RenderableType:
    """Each lease with what it pays, and the sums by asset."""
    columns = ("node", "devices", "per hour", "receipts", "claimed", "billed", "charge", "refund", "paid", "why")
    rows = []
    for line in earnings.lines:
        *figures, why = _row(line, asset=line.asset, scale=line.asset_scale)
        paid = (
            show_units(line.paid_units, asset=line.asset, scale=line.asset_scale) if line.fee_bps is not None else "-"
        )
        rows.append((*figures, paid, why))
    scales = {line.asset: line.asset_scale for line in earnings.lines}
    sums = [show_units(units, asset=asset, scale=scales[asset]) for asset, units in sorted(earnings.paid_units.items())]
    title = f"Leases that ended from {earnings.since:%Y-%m-%d %H:%M} until {earnings.until:%Y-%m-%d %H:%M} UTC"
    return Group(
        table(title, columns, rows, right=columns[1:9]),
        Text.from_markup(f"paid     [bold]{escape(', '.join(sums)) or 'nothing'}[/] after the platform's fee"),
        Text.from_markup(_verdict(verification)),
    )


def export_view(found: VerifiedExport) -> RenderableType:
    """What a file says, who signed it, and whether that is true."""
    if isinstance(found.view, BillView):
        body = bill_view(found.view, found.verification)
    elif isinstance(found.view, EarningsView):
        body = earnings_view(found.view, found.verification)
    else:
        return Text.from_markup(_verdict(found.verification))
    whose = "the key that you gave" if found.is_pinned else "a key that you should compare with the marketplace's"
    return Group(body, Text(f"signed   by {whose}: sha256 {found.fingerprint}"))


def _row(line: BillLine, *, asset: str, scale: int) -> tuple[str, ...]:
    def show(units: int) -> str:
        return show_units(units, asset=asset, scale=scale)

    return (
        escape(line.node_name),
        str(line.devices),
        show(line.rate_units_per_hour),
        str(len(line.receipts)),
        f"{line.claimed_ms / 1000:.3f} s",
        f"{line.billable_ms / 1000:.3f} s",
        show(line.charge_units),
        show(line.refunded_units) if line.refunded_units else "",
        escape(line.explanation or line.reason),
    )


def _sums(bill: BillView) -> list[str]:
    def show(units: int) -> str:
        return escape(show_units(units, asset=bill.asset, scale=bill.asset_scale))

    pending = sum(lease.pending_units for lease in bill.escrow.leases) if bill.escrow is not None else 0
    # A sum of 0 before the end is what nobody has reckoned yet; what a contract took or gave back already is so.
    fee, released = show(bill.fee_units), show(bill.released_units)
    if pending or not bill.is_final:
        fee = f"{fee} so far" if bill.fee_units else NOT_KNOWN
    if not bill.is_final and not bill.released_units:
        released = NOT_KNOWN
    of_which = f"of which the platform's fee is {fee}"
    lines = [
        f"total    [bold]{show(bill.total_units)}[/] ({escape(_units(bill.total_units, bill.asset))}), {of_which}",
        f"held     {show(bill.hold_units)}, given back {released}",
    ]
    if bill.escrow is not None:
        lines[1] += f" to wallet {escape(bill.escrow.wallet)}, by contract {escape(bill.escrow.contract)}"
        if pending:
            lines.append(f"pending  {show(pending)} can still be contested; the fee is taken when it is paid")
    if bill.price is not None:
        at = f", {bill.price.observed_at:%Y-%m-%d %H:%M:%S} UTC" if bill.price.observed_at else ""
        price = money(bill.price.usd_micros_per_token)
        lines.append(
            f"price    {price} a {escape(bill.asset)} ({escape(bill.price.source)}{at}): {money(bill.total_usd_micros)}"
        )
    return lines


def _verdict(verification: Verification) -> str:
    if verification.problem:
        return f"[bold red]DOES NOT VERIFY[/]: {escape(verification.problem)}"
    charged = [_units(units, asset) for asset, units in sorted(verification.charged_units.items())]
    return (
        f"[bold green]verified[/]: {_count(verification.receipts, 'signed receipt')}, the chain of each lease without "
        f"a gap, {_count(verification.lines, 'line')} adding up to {escape(', '.join(charged)) or 'nothing'}"
    )


def _units(units: int, asset: str) -> str:
    """A sum in the smallest unit of its own asset: "26414 micro-USD", "1 base unit of TUSD"."""
    return f"{units} micro-USD" if asset == USD else f"{_count(units, 'base unit')} of {asset}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
