"""The payout run: everybody who is due is paid once, after the books were held against the outside.

1. anybody due, any reserve ripe? (one look; most ticks end here)
2. reconcile; a difference that nothing explains opens the breaker, and the run ends
3. release ripe reserves
4. PROVIDERS_PER_BATCH at a time, while payouts may leave: whoever of them owes for a chargeback pays that first
5. then, in one transaction: keep their reserves, reserve their payouts, move their dates on, write down the call to
   each rail
6. whoever was busy, and everybody of a batch that failed: the same for each alone
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from billing import breaker
from billing.fiat import claims
from billing.models import PayoutSettings, ReserveSlice
from billing.payouts import rolling_reserve
from billing.payouts.calendar import next_due
from billing.payouts.errors import NothingToPay, PayoutUnderWay
from billing.payouts.paying import FAILURES_MAX, enqueue
from billing.payouts.reserving import open_payers, reserve_payouts
from billing.rails import registry
from billing.reconciliation.reconciling import reconcile
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures, only_one

PROVIDERS_PER_BATCH: Final = 200  # in one transaction, and at most so many locked at a time
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
        rolling_reserve.release_ripe(now)
        if breaker.is_open():
            log.warning("A payout run was left out: the breaker is open.")
            return 0
        rails = [name for name in registry.payouts_on() if name not in report.unanswered]
        ids = list(_due(now, rails).order_by("due_at", "pk").values_list("pk", flat=True)[:PROVIDERS_PER_RUN_MAX])
        made = 0
        for start in range(0, len(ids), PROVIDERS_PER_BATCH):
            if breaker.is_open():
                log.warning("A payout run was cut short: the breaker was opened meanwhile.")
                break
            made += _pay_batch(ids[start : start + PROVIDERS_PER_BATCH], now, rails)
        return made


def _is_anything_due(now: datetime) -> bool:
    ripe = ReserveSlice.objects.filter(released_at=None, release_at__lte=now)
    return _due(now, registry.payouts_on()).exists() or ripe.exists()


def _due(now: datetime, rails: Sequence[str]) -> QuerySet[PayoutSettings]:
    """Everybody whose date has come, and who is paid by one of these rails, or will be once this run looks."""
    is_ripe = Q(next_from__lte=clock.now())
    by_rail = (~is_ripe & Q(rail__in=rails)) | (is_ripe & Q(next_rail__in=rails))
    return PayoutSettings.objects.filter(by_rail, due_at__lte=now, failures__lt=FAILURES_MAX)


def _pay_batch(ids: Sequence[UUID], now: datetime, rails: Sequence[str]) -> int:
    """All of these at once; one bad one stops no other. How many payouts were reserved."""
    try:
        made, busy = _pay(ids, now, rails, is_patient=False)
    except Exception:  # whoever it was is found out below
        log.exception("A batch of payouts could not be made; each is tried alone.")
        made, busy = 0, list(ids)
    for settings_id in busy:
        with log_failures("A provider could not be paid.", payout_settings_id=str(settings_id)):
            made += _pay([settings_id], now, rails, is_patient=True)[0]
    return made


def _pay(ids: Sequence[UUID], now: datetime, rails: Sequence[str], *, is_patient: bool) -> tuple[int, list[UUID]]:
    """Payouts for those who are due, with their calls and next dates, or nothing; how many, and who was busy."""
    mine = _due(now, rails).filter(pk__in=ids).select_related("asset").order_by("pk")
    rows = list(mine)
    open_payers(rows)
    claims.collect({row.provider_id for row in rows})
    with transaction.atomic():
        # Another run may have paid some since we looked, or their owners may be changing them now.
        due = list(mine.select_for_update(of=("self",), skip_locked=True))
        done = reserve_payouts(due, actor=ACTOR, is_patient=is_patient)
        enqueue(done.payouts)
        moved = [row for row in due if row.pk not in done.busy]
        for row in moved:
            refusal = done.refused.get(row.pk)
            if refusal is not None and not isinstance(refusal, (NothingToPay, PayoutUnderWay)):
                row.last_error = refusal.message  # like a frozen account: shown to the provider, tried again next time
            row.due_at = next_due(row.schedule, now)
        PayoutSettings.objects.bulk_update(moved, ["due_at", "last_error"])
        return len(done.payouts), done.busy
