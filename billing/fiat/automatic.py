"""Automatic top-ups: whose balance is below their threshold pays in again, one at a time, up to a month's maximum."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import Sum

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.errors import BillingError
from billing.fiat import rules, topups
from billing.fiat.errors import CardNotFound, TopUpLimitReached, TopUpUnderWay
from billing.models import Account, AutoTopUp, TopUp
from billing.money import MICROS_PER_USD, format_usd
from billing.rails.stripe import client as stripe_client
from billing.states.fiat import TopUpState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures

RULES_MAX: Final = 1000  # looked at in one tick, those that were looked at longest ago first
MONTH: Final = timedelta(days=30)
PAUSE_AFTER_FAILURE: Final = timedelta(hours=1)

log = logging.getLogger(__name__)


def set_rule(
    owner_id: UUID, *, threshold: int, amount: int, monthly_max: int, is_enabled: bool, actor: str
) -> AutoTopUp:
    """Set the owner's rule, within the limits of a top-up."""
    limits = (settings.SOUK_TOP_UP_USD_MIN * MICROS_PER_USD, settings.SOUK_TOP_UP_USD_MAX * MICROS_PER_USD)
    return rules.set_rule(
        owner_id,
        threshold=threshold,
        amount=amount,
        monthly_max=monthly_max,
        is_enabled=is_enabled,
        actor=actor,
        limits=limits,
    )


def run_rules() -> int:
    """Request the top-ups that the rules require; how many."""
    if not stripe_client.is_configured() or settings.SOUK_STRIPE_TAX:
        return 0
    requested = 0
    alive = AutoTopUp.objects.filter(is_enabled=True, paused_at=None).order_by("updated_at", "pk")
    for rule in alive[:RULES_MAX]:
        AutoTopUp.objects.filter(pk=rule.pk).update(updated_at=clock.now())
        with log_failures("An automatic top-up could not be requested.", owner_id=str(rule.pk)):
            requested += int(_run(rule))
    return requested


def _run(rule: AutoTopUp) -> bool:
    """Whether a top-up was requested; a rule that cannot be kept is paused, with the cause."""
    if not _is_due(rule):
        return False
    try:
        _check_month(rule)
        actor = f"rule of {rule.actor}"[:120]
        topups.request_top_up(rule.owner_id, rule.amount, method=TopUp.Method.AUTOMATIC, actor=actor)
    except (CardNotFound, TopUpLimitReached) as error:
        rules.pause(rule.owner_id, str(error))
        return False
    except TopUpUnderWay:
        return False
    except BillingError as error:
        log.warning("An automatic top-up was refused. owner_id=%s error=%s", rule.owner_id, error)
        return False
    return True


def _is_due(rule: AutoTopUp) -> bool:
    if balance(rule.owner_id, AccountKind.CUSTOMER_AVAILABLE) >= rule.threshold or _is_frozen(rule.owner_id):
        return False
    mine = TopUp.objects.filter(owner_id=rule.owner_id, method=TopUp.Method.AUTOMATIC)
    now = clock.now()
    if mine.filter(state=TopUpState.FAILED, created_at__gt=now - PAUSE_AFTER_FAILURE).exists():
        return False
    # Money that waits because its payer is new is on its way: no more is requested meanwhile.
    return not TopUp.objects.filter(owner_id=rule.owner_id, spendable_at__gt=now).exists()


def _check_month(rule: AutoTopUp) -> None:
    """Raises TopUpLimitReached where one more would go above the owner's own maximum."""
    counted = TopUp.objects.filter(
        owner_id=rule.owner_id, method=TopUp.Method.AUTOMATIC, created_at__gt=clock.now() - MONTH
    ).exclude(state__in=[TopUpState.FAILED, TopUpState.EXPIRED])
    used = int(counted.aggregate(used=Sum("amount"))["used"] or 0)
    if used + rule.amount > rule.monthly_max:
        raise TopUpLimitReached(
            f"The rule's maximum of {format_usd(int(rule.monthly_max))} in 30 days leaves no room for another top-up."
        )


def _is_frozen(owner_id: UUID) -> bool:
    kind = AccountKind.CUSTOMER_AVAILABLE
    return Account.objects.filter(owner_id=owner_id, kind=kind, is_frozen=True).exists()
