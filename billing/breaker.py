"""The switch that stops payouts. Reconciliation opens it; an operator closes it, with a note."""

from __future__ import annotations

import logging
from typing import Final

from django.db import IntegrityError, transaction

from billing.errors import PayoutsStopped
from billing.models import PayoutBreaker, Reconciliation
from billing.notices import alerts
from billing.states import BreakerState
from marketplace.foundation import clock
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.states import advance, record_birth

CAUSE_CHARACTERS_MAX = 200
ALERT_KEY: Final = "payouts:breaker"

log = logging.getLogger(__name__)


def open_breaker(cause: str, *, reconciliation: Reconciliation | None = None, actor: str = "system") -> PayoutBreaker:
    """Stop payouts, from this commit on; while they are stopped, the breaker that did it."""
    found = current()
    if found is not None:
        return found
    try:
        with transaction.atomic():
            row = PayoutBreaker.objects.create(cause=cause[:CAUSE_CHARACTERS_MAX], reconciliation=reconciliation)
            record_birth(row, actor=actor, data={"cause": row.cause})
            message = (
                f"Payouts are stopped: {row.cause}. Close the breaker with a note once the difference is explained; "
                "what nothing else books is booked by two people with `souk ledger correct`."
            )
            alerts.raise_once(
                ALERT_KEY, kind="payout_breaker", severity=alerts.Severity.CRITICAL, subject=row.pk, message=message
            )
    except IntegrityError:  # another process opened one at the same moment
        return PayoutBreaker.objects.get(state=BreakerState.OPEN)
    log.critical("Payouts are stopped. breaker=%s cause=%s", row.pk, row.cause)
    return row


def close_breaker(breaker: PayoutBreaker, *, actor: str, note: str) -> PayoutBreaker:
    """Let payouts continue; the note names the difference. The next reconciliation compares again."""
    if not note.strip():
        raise BadRequest("Say in the note what the difference was, and why payouts may go on.")
    with transaction.atomic():
        closed = advance(
            breaker,
            BreakerState.CLOSED,
            reason="closed",
            actor=actor,
            closed_at=clock.now(),
            closed_by=actor,
            note=note.strip(),
        )
        alerts.close(ALERT_KEY)
        return closed


def current() -> PayoutBreaker | None:
    """The open breaker, or None."""
    return PayoutBreaker.objects.filter(state=BreakerState.OPEN).first()


def is_open() -> bool:
    """Whether payouts are stopped."""
    return current() is not None


def require_closed() -> None:
    """Return only while payouts may leave; raises PayoutsStopped."""
    found = current()
    if found is not None:
        raise PayoutsStopped(since=found.opened_at.isoformat(timespec="minutes"))
