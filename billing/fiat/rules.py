"""A customer's rule for automatic top-ups: set, pause after failures, resume. Running it is automatic.py's."""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from django.db import transaction

from billing.errors import AmountInvalid
from billing.fiat.errors import TopUpRefused
from billing.models import AutoTopUp
from billing.money import MICROS_PER_CENT, format_usd
from billing.notices import alerts
from marketplace.foundation import clock

FAILURES_MAX: Final = 3  # in a row; then the rule waits for its owner

log = logging.getLogger(__name__)


def set_rule(
    owner_id: UUID,
    *,
    threshold: int,
    amount: int,
    monthly_max: int,
    is_enabled: bool,
    actor: str,
    limits: tuple[int, int],
) -> AutoTopUp:
    """Replace the owner's rule, and take it out of its pause. Raises AmountInvalid, TopUpRefused."""
    least, most = limits
    if not least <= amount <= most or amount % MICROS_PER_CENT:
        raise TopUpRefused(least=format_usd(least), most=format_usd(most), amount=format_usd(amount)[:40])
    if threshold < 0 or monthly_max < amount:
        raise AmountInvalid("The threshold is zero or more, and a month's maximum at least one top-up.")
    fields = {
        "threshold": threshold,
        "amount": amount,
        "monthly_max": monthly_max,
        "is_enabled": is_enabled,
        "actor": actor,
        "failures": 0,
        "paused_at": None,
        "pause_reason": "",
        "updated_at": clock.now(),
    }
    with transaction.atomic():
        rule, _ = AutoTopUp.objects.update_or_create(owner_id=owner_id, defaults=fields)
        alerts.close(_alert_key(owner_id))
        return rule


def count_failure(owner_id: UUID, *, reason: str) -> None:
    """One more in a row; at FAILURES_MAX the rule pauses, which raises an alert and is shown to its owner."""
    with transaction.atomic():
        rule = AutoTopUp.objects.select_for_update().filter(owner_id=owner_id).first()
        if rule is None:
            return
        rule.failures += 1
        if rule.failures >= FAILURES_MAX and rule.paused_at is None:
            _pause(rule, f"{rule.failures} top-ups in a row failed, the last one with {reason}")
        rule.save(update_fields=["failures", "paused_at", "pause_reason"])


def count_success(owner_id: UUID) -> None:
    """The count of failures starts again."""
    AutoTopUp.objects.filter(owner_id=owner_id).update(failures=0)


def pause(owner_id: UUID, reason: str) -> None:
    """Stop until the owner sets the rule again."""
    with transaction.atomic():
        rule = AutoTopUp.objects.select_for_update().filter(owner_id=owner_id, paused_at=None).first()
        if rule is not None:
            _pause(rule, reason)
            rule.save(update_fields=["paused_at", "pause_reason"])


def _pause(rule: AutoTopUp, reason: str) -> None:
    rule.paused_at, rule.pause_reason = clock.now(), reason[:200]
    log.warning("Automatic top-ups are paused. owner_id=%s reason=%s", rule.owner_id, reason)
    message = f"Automatic top-ups of {rule.owner_id} are paused until their owner sets the rule again: {reason}"
    alerts.raise_once(_alert_key(rule.owner_id), kind="auto_top_up_paused", subject=rule.owner_id, message=message)


def _alert_key(owner_id: UUID) -> str:
    return f"auto_top_up:{owner_id}"
