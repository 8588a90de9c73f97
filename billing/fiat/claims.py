"""While a claim on a customer is unpaid, the customer's balance is empty, in whatever order Stripe's events arrive.

A claim is what Stripe took from us for a customer's payment and the balance could not pay then: the rest of a
chargeback that was not won, what providers paid of one, or the rest of a refund made at Stripe itself. Whenever money
may have come in, `settle` takes it; so in the end balance and loss depend on what happened, and not on which
event arrived first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.fiat import recovery
from billing.models import Account, CardDispute, ChargebackRecovery, TopUpRefund
from billing.rails.stripe import booking
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures

Claim = TypeVar("Claim", CardDispute, TopUpRefund)

CLAIMS_MAX: Final = 200  # of one customer, of each kind, oldest first; the next call takes the next
AGAIN: Final = timedelta(days=120)  # how long recovery from providers is retried; a bank's dispute may take half of it
PAYING: Final = (AccountKind.CUSTOMER_AVAILABLE, AccountKind.PROVIDER_RESERVE, AccountKind.PROVIDER_AVAILABLE)


def settle(owner_id: UUID) -> int:
    """Take what the customer's claims lack out of what they have, as far as it reaches. What it took, in micro-USD.

    First what the platform bears, then what other providers bore for this customer: so in the end it is as if the
    money had been there when the bank came. A claim that another process works on is left to it, or to the sweep.
    """
    claims = _disputes(owner_id), _carried(owner_id), _refunds(owner_id)
    if not any(rows.exists() for rows in claims):
        return 0
    with transaction.atomic():
        disputes = list(_locked(CardDispute.objects.filter(top_up__owner_id=owner_id, state__in=recovery.RECOVERED)))
        refunds = list(_locked(_refunds(owner_id)))
        names = recovery.own_accounts(owner_id)
        booking.lock(recovery.LOSS, *names, also=[one for each in disputes for one in recovery.carriers(each)])
        return sum(_pay(name, disputes, refunds) for name in names)


def recover_again(limit: int) -> int:
    """Retry recovery from providers paid since, where a dispute is unpaid: their pay may have left its window."""
    young = clock.now() - AGAIN
    recovered = 0
    for pk in list(_disputes().filter(created_at__gt=young).values_list("pk", flat=True)[:limit]):
        with log_failures("A dispute could not be recovered.", dispute_id=str(pk)), transaction.atomic():
            dispute = CardDispute.objects.select_for_update(of=("self",)).select_related("top_up").get(pk=pk)
            if dispute.state in recovery.RECOVERED:
                recovered += recovery.recover(dispute) > 0
    return recovered


def collect(owner_ids: Collection[UUID]) -> int:
    """Settle what these owe before they are paid anything themselves; how many of them paid something.

    One question to the database where none of them owes. Not within a transaction that holds accounts: it waits.
    """
    paid = 0
    for owner_id in owners_who_can_pay(len(owner_ids), among=owner_ids):
        with log_failures("What a provider owes could not be collected.", owner_id=str(owner_id)):
            paid += settle(owner_id) > 0
    return paid


def owners_who_can_pay(limit: int, *, among: Collection[UUID] | None = None) -> list[UUID]:
    """Customers with an unpaid claim who have something to pay it with."""
    balance = Account.objects.filter(
        owner_id=OuterRef("top_up__owner_id"),
        kind__in=PAYING,
        asset_id=booking.PLATFORM.asset_id,
        credits_posted__gt=F("debits_posted") + F("debits_pending"),
    )
    mine = Q() if among is None else Q(top_up__owner_id__in=among)
    claims: list[QuerySet[CardDispute] | QuerySet[TopUpRefund]] = [_disputes(), _carried(), _refunds()]
    owners = [rows.filter(mine, Exists(balance)).order_by().values_list("top_up__owner_id") for rows in claims]
    return sorted(row[0] for row in owners[0].union(*owners[1:])[:limit])


def _pay(name: AccountName, disputes: Sequence[CardDispute], refunds: Sequence[TopUpRefund]) -> int:
    """Out of one account, whose lock is held."""
    left = available = max(Account.objects.get(pk=name.id).available, 0)
    for dispute in disputes:
        amount = min(left, recovery.missing(dispute))
        if amount > 0:
            recovery.take(dispute, Account.objects.get(pk=name.id), amount)
            left -= amount
    for refund in refunds:
        amount = min(left, int(refund.shortage))
        if amount > 0:
            _pay_refund(refund, name, amount)
            left -= amount
    for dispute in disputes:
        left -= recovery.relieve(dispute, Account.objects.get(pk=name.id), left)
    return available - left


def _disputes(owner_id: UUID | None = None) -> QuerySet[CardDispute]:
    """Those whose loss is not recovered wholly; what is being recovered from providers counts as unpaid here."""
    taken = Sum("recoveries__amount", filter=Q(recoveries__given_back=None))
    rows = _recovered(owner_id).annotate(taken=Coalesce(taken, Value(0)))
    return rows.filter(loss__gt=F("taken")).order_by("created_at", "pk")


def _carried(owner_id: UUID | None = None) -> QuerySet[CardDispute]:
    """Those for which others than the customer have paid."""
    paid = ChargebackRecovery.objects.filter(dispute=OuterRef("pk"), given_back=None)
    others = paid.exclude(account__owner_id=OuterRef("top_up__owner_id"))
    return _recovered(owner_id).filter(Exists(others)).order_by("created_at", "pk")


def _recovered(owner_id: UUID | None) -> QuerySet[CardDispute]:
    rows = CardDispute.objects.filter(state__in=recovery.RECOVERED)
    return rows if owner_id is None else rows.filter(top_up__owner_id=owner_id)


def _refunds(owner_id: UUID | None = None) -> QuerySet[TopUpRefund]:
    rows = TopUpRefund.objects.filter(shortage__gt=0).order_by("created_at", "pk")
    return rows if owner_id is None else rows.filter(top_up__owner_id=owner_id)


def _locked(rows: QuerySet[Claim]) -> QuerySet[Claim]:
    return rows.select_for_update(of=("self",), skip_locked=True).order_by("created_at", "pk")[:CLAIMS_MAX]


def _pay_refund(refund: TopUpRefund, customer: AccountName, amount: int) -> None:
    """What the platform paid of a refund that was made at Stripe, taken from whose refund it was."""
    balance, loss = open_accounts([customer, recovery.LOSS])
    ref = refund.stripe_id or str(refund.pk)
    ledger.post_from_frozen(balance, [recovery.recovery_of(balance, loss, amount, ref)], group_id=refund.pk)
    refund.shortage -= amount
    refund.save(update_fields=["shortage"])
