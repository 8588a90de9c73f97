"""Evidence for a bank: what was paid, what ran for it, and who signed for that. No personal data of others."""

from __future__ import annotations

from typing import Final

from billing.models import Settlement, TopUp, UsageReceipt
from billing.money import format_usd

CHARACTERS_MAX: Final = 20_000  # what Stripe takes in one field
JOBS_MAX: Final = 100
PRODUCT: Final = (
    "Prepaid balance for GPU computing. The customer's jobs run on rented GPUs and are charged by the second from "
    "this balance; each second is signed for by the machine that ran them."
)


def prepare(top_up: TopUp) -> str:
    """The trail of one top-up as text: the payment, and every job that was charged to its payer since."""
    card = f" by {top_up.card}" if top_up.card is not None else ""
    lines = [
        f"The customer's organisation {top_up.owner_id} paid {format_usd(int(top_up.amount))} in advance{card}.",
        f"Requested at {top_up.created_at:%Y-%m-%d %H:%M:%S} UTC by the signed-in user {top_up.actor}; "
        f"credited at {top_up.credited_at:%Y-%m-%d %H:%M:%S} UTC as top-up {top_up.pk}."
        if top_up.credited_at
        else f"Requested at {top_up.created_at:%Y-%m-%d %H:%M:%S} UTC as top-up {top_up.pk}.",
        "",
        "Jobs that this organisation ran and was charged for since:",
    ]
    jobs = Settlement.objects.filter(owner_id=top_up.owner_id, created_at__gte=top_up.created_at).order_by("created_at")
    settled = list(jobs[: JOBS_MAX + 1])
    lines += [_line(settlement) for settlement in settled[:JOBS_MAX]] or ["none"]
    if len(settled) > JOBS_MAX:
        lines.append("and more, which are listed on request.")
    return "\n".join(lines)[:CHARACTERS_MAX]


def _line(settlement: Settlement) -> str:
    receipts = UsageReceipt.objects.filter(job_id=settlement.job_id).count()
    return (
        f"- {settlement.created_at:%Y-%m-%d %H:%M} UTC, job {settlement.job_id}: "
        f"{format_usd(int(settlement.charged))}, {receipts} signed usage receipts"
    )
