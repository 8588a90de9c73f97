"""The bill, for people: one lease a line, what was claimed and charged and why they differ, and the sum."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from jobs.client.bill_verify import Verification
from jobs.client.output import money, table
from jobs.wire import BillView


def bill_view(bill: BillView, verification: Verification | None) -> RenderableType:
    """The bill and, where it was asked for, what its verification found."""
    columns = ("attempt", "node", "devices", "$/hour", "receipts", "claimed", "billed", "charge", "refund", "why")
    rows = [
        (
            str(line.attempt),
            escape(line.node_name),
            str(line.devices),
            money(line.rate_usd_micros_per_hour),
            str(len(line.receipts)),
            f"{line.claimed_ms / 1000:.3f} s",
            f"{line.billable_ms / 1000:.3f} s",
            money(line.charge_usd_micros),
            money(line.refunded_usd_micros) if line.refunded_usd_micros else "",
            escape(line.explanation or line.reason),
        )
        for line in bill.lines
    ]
    title = f"Bill of job {bill.job_id}" + ("" if bill.is_final else " (so far)")
    of_which = f"of which the platform's fee is {money(bill.fee_usd_micros)}"
    sums = [
        f"total    [bold]{money(bill.total_usd_micros)}[/] ({bill.total_usd_micros} micro-USD), {of_which}",
        f"held     {money(bill.hold_usd_micros)}, given back {money(bill.released_usd_micros)}",
    ]
    parts: list[RenderableType] = [table(title, columns, rows, right=columns[2:9]), Text.from_markup("\n".join(sums))]
    if verification is not None:
        parts.append(Text.from_markup(_verdict(verification)))
    return Group(*parts)


def _verdict(verification: Verification) -> str:
    if verification.problem:
        return f"[bold red]DOES NOT VERIFY[/]: {escape(verification.problem)}"
    return (
        f"[bold green]verified[/]: {verification.receipts} signed receipts, the chain of each lease without a gap, "
        f"{verification.lines} lines adding up to {verification.total_usd_micros} micro-USD"
    )
