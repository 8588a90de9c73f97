"""Callers of other organisations pay an endpoint's owner for tokens: many requests at once, each once.

A caller without money is not paid for by anybody: what it used stays due, its keys are refused, and the owner gets it
when there is money again. How much that can be is bounded by what gateways were given to let it spend
(`key_grants.py`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.charging.token_usage import pay_for_tokens
from billing.errors import AccountFrozen, InsufficientFunds
from jobs.models import UsagePayment, UsageRecord
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.ids import new_id

GROUPS_MAX: Final = 500  # (caller, endpoint) in one sweep
RECORDS_MAX: Final = 10_000  # in one payment
KEEP_RECORDS: Final = timedelta(days=35)  # longer than any challenge window; the sums of the days stay
FORGET_PER_SWEEP_MAX: Final = 50_000


def pay_due() -> int:
    """Pay what callers owe for other organisations' endpoints, a payment a caller and endpoint; how many there were."""
    due = _due().order_by().values_list("organisation_id", "owner_id", "endpoint_id").distinct()[:GROUPS_MAX]
    count = 0
    for payer_id, owner_id, endpoint_id in list(due):
        with log_failures("Tokens could not be paid for.", payer=str(payer_id), endpoint=str(endpoint_id)):
            count += pay_endpoint(payer_id, owner_id, endpoint_id) is not None
    return count


def pay_endpoint(payer_id: UUID, owner_id: UUID, endpoint_id: UUID) -> UsagePayment | None:
    """One payment for the oldest of what is due, as far as the balance goes; None where there is nothing to pay with.

    The records name their payment in the same transaction, so that of two who pay one finds nothing left.
    """
    try:
        with transaction.atomic():
            rows = _due().filter(organisation_id=payer_id, owner_id=owner_id, endpoint_id=endpoint_id).order_by("pk")
            rows = rows.select_for_update(skip_locked=True)
            costs = list(rows.values_list("pk", "cost_usd_micros")[:RECORDS_MAX])
            ids, amount = _covered(costs, balance(payer_id, AccountKind.CUSTOMER_AVAILABLE))
            if not ids:
                return None
            payment_id = new_id()
            fee, paid = pay_for_tokens(
                payer_id=payer_id,
                owner_id=owner_id,
                amount=amount,
                fee_bps=settings.SOUK_FEE_BPS,
                payment_id=payment_id,
            )
            payment = UsagePayment.objects.create(
                id=payment_id,
                payer_id=payer_id,
                owner_id=owner_id,
                endpoint_id=endpoint_id,
                records=len(ids),
                charged_usd_micros=amount,
                fee_usd_micros=fee,
                paid_usd_micros=paid,
                created_at=clock.now(),
            )
            UsageRecord.objects.filter(pk__in=ids).update(payment=payment)
            return payment
    except (InsufficientFunds, AccountFrozen):
        return None  # somebody else spent it meanwhile; what is due stays due


def forget_records() -> int:
    """Delete what is older than KEEP_RECORDS and paid, or nothing to pay; how many."""
    old = UsageRecord.objects.filter(at__lt=clock.now() - KEEP_RECORDS)
    settled = old.filter(Q(payment__isnull=False) | Q(cost_usd_micros=0) | Q(organisation_id=F("owner_id")))
    ids = list(settled.order_by("at").values_list("pk", flat=True)[:FORGET_PER_SWEEP_MAX])
    return UsageRecord.objects.filter(pk__in=ids).delete()[0]


def _due() -> QuerySet[UsageRecord]:
    return UsageRecord.objects.filter(~Q(organisation_id=F("owner_id")), payment=None, cost_usd_micros__gt=0)


def _covered(costs: list[tuple[int, int]], money: int) -> tuple[list[int], int]:
    """The first of them that the money is enough for, and their sum."""
    ids, amount = [], 0
    for each, cost in costs:
        if amount + cost > money:
            break
        ids.append(each)
        amount += cost
    return ids, amount
