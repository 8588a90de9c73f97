"""The payout run: everybody who is due is paid once, after the books were held against the outside.

1. anybody due, any reserve ripe? (one look; most ticks end here)
2. reconcile; a difference that nothing explains opens the breaker, and the run ends
3. release ripe reserves
4. each due provider: keep its reserve, reserve its payout, move its date on (one transaction each)
5. write down the calls to the rails, PAYOUTS_PER_CALL_MAX payouts each
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from billing.errors import BillingError
from billing.models import Payout, PayoutSettings, ReserveSlice
from billing.payouts import reserve
from billing.payouts.calendar import next_due
from billing.payouts.errors import NothingToPay, PayoutUnderWay
from billing.payouts.paying import FAILURES_MAX, enqueue, request_and_reserve
from billing.rails import registry
from billing.reconciliation import breaker
from billing.reconciliation.reconciling import reconcile
from marketplace.foundation import clock
from marketplace.foundation.exclusive import alone, only_one

PROVIDERS_PER_BATCH: Final = 200  # whose payouts become calls together
PROVIDERS_PER_RUN_MAX: Final = 20_000  # the next tick takes the next
ACTOR: Final = "payout run"

log = logging.getLogger(__name__)


def run_payouts(now: datetime | None = None) -> int:
    """Pay everybody who is due; how many payouts were reserved. Any number may run this at once: one does."""
    now = now or clock.now()
    with only_one("billing.run_payouts") as is_mine:
        if not is_mine or not _is_anything_due(now):
            return 0
        report = reconcile(reason="payout run")
        reserve.release_ripe(now)
        if breaker.is_open():
            log.warning("A payout run was left out: the breaker is open.")
            return 0
        rails = [name for name in registry.names_on() if name not in report.unanswered]
        ids = list(_due(now).filter(rail__in=rails).order_by("due_at", "pk").values_list("pk", flat=True))
        return sum(
            _pay_batch(ids[start : start + PROVIDERS_PER_BATCH], now)
            for start in range(0, min(len(ids), PROVIDERS_PER_RUN_MAX), PROVIDERS_PER_BATCH)
        )


def _is_anything_due(now: datetime) -> bool:
    ripe = ReserveSlice.objects.filter(released_at=None, release_at__lte=now)
    return _due(now).filter(rail__in=registry.names_on()).exists() or ripe.exists()


def _due(now: datetime) -> QuerySet[PayoutSettings]:
    return PayoutSettings.objects.filter(due_at__lte=now, failures__lt=FAILURES_MAX)


def _pay_batch(ids: Sequence[UUID], now: datetime) -> int:
    """A transaction a provider, so that no two of them lock each other's accounts; one bad one stops no other.

    Dying before the calls are written down leaves reserved payouts, which submission.heal_lost calls for.
    """
    payouts: list[Payout] = []
    for settings_id in ids:
        with alone("A provider could not be paid.", payout_settings_id=str(settings_id)):
            payouts += _pay_one(settings_id, now)
    enqueue(payouts)
    return len(payouts)


def _pay_one(settings_id: UUID, now: datetime) -> list[Payout]:
    """The payout of one provider, if it is due and has something to be paid; its next date either way."""
    with transaction.atomic():
        rows = PayoutSettings.objects.select_for_update(of=("self",), skip_locked=True).select_related("asset")
        row = rows.filter(pk=settings_id, due_at__lte=now).first()  # another run may have paid it since we looked
        if row is None:
            return []
        made: list[Payout] = []
        try:
            with transaction.atomic():
                made = [request_and_reserve(row, actor=ACTOR)]
        except (NothingToPay, PayoutUnderWay):
            pass
        except BillingError as error:  # a frozen account, say: shown to the provider, tried again next time
            row.last_error = error.message
        row.due_at = next_due(row.schedule, now)
        row.save(update_fields=["due_at", "last_error"])
        return made
