"""/billing: the balance, the top-ups and the transfers of the API, as a page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from rest_framework.request import Request

from billing import tasks
from billing.account_kinds import AccountKind
from billing.api.balance import NewestTransfersFirst
from billing.books.owned import balances_of
from billing.fiat import customers, topups
from billing.fiat.errors import TopUpNotFound
from billing.models import TopUp, Transfer
from billing.money import format_amount, parse_usd
from billing.states.fiat import TOP_UP_UNDER_WAY
from billing.transfer_codes import TransferMode
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.foundation.errors import BadRequest
from marketplace.portal.amounts import amounts_of
from marketplace.portal.visitors import Visitor, actor_of, organisation_of, page, uuid_of

SEE: Final = "seeing an organisation's money"
PAY_IN: Final = "paying in for an organisation"
TOP_UPS_SHOWN_MAX: Final = 5
PRESSED_TWICE: Final = timedelta(seconds=30)
KINDS: Final = {
    AccountKind.CUSTOMER_AVAILABLE: "free to use",
    AccountKind.CUSTOMER_PROMOTION: "given, to use first",
    AccountKind.JOB_HOLD: "held for jobs",
    AccountKind.PROVIDER_PENDING: "earned, may still be contested",
    AccountKind.PROVIDER_AVAILABLE: "earned, can be paid out",
    AccountKind.PROVIDER_RESERVE: "earned, kept back for a while",
    AccountKind.PAYOUT_CLEARING: "on its way out",
}
ALWAYS_SHOWN: Final = {AccountKind.CUSTOMER_AVAILABLE, AccountKind.JOB_HOLD}
MOVED: Final = {TransferMode.SINGLE, TransferMode.POST}


@dataclass(frozen=True)
class Movement:
    """One transfer as its owner reads it; `change` is empty where the money stayed theirs."""

    at: datetime
    why: str
    change: str
    amount: str
    where: str
    job_id: UUID | None


@page("GET")
def billing_page(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """What there is, of every asset; the newest top-ups; every transfer, by pages, or those of one job (`?job=`)."""
    organisation = organisation_of(visitor, Scope.BILLING_READ, SEE)
    found = Transfer.objects.of(organisation.pk).select_related("asset", "debit", "credit")
    job_id = uuid_of(request.GET["job"]) if request.GET.get("job") else None
    if request.GET.get("job"):
        if job_id is None:
            raise BadRequest("?job= has to be a job's id.")
        found = found.filter(job_id=job_id)
    paginator = NewestTransfersFirst()
    rows = paginator.paginate_queryset(found, Request(request)) or []
    context = {
        "visitor": visitor,
        "balances": [(each.asset, amounts_of(each, KINDS, ALWAYS_SHOWN)) for each in balances_of(organisation.pk)],
        "top_ups": TopUp.objects.filter(owner_id=organisation.pk).order_by("-created_at")[:TOP_UPS_SHOWN_MAX],
        "movements": [_movement(row, organisation.pk) for row in rows],
        "job_id": job_id,
        "newer": urlsplit(paginator.get_previous_link() or "").query,
        "older": urlsplit(paginator.get_next_link() or "").query,
        "may_pay": visitor.may(Scope.BILLING_WRITE),
    }
    return render(request, "portal/billing/billing.html", context)


@page("POST")
def top_up(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Begin to pay in; the next page leads to the payment processor's."""
    organisation = organisation_of(visitor, Scope.BILLING_WRITE, PAY_IN)
    try:
        amount = parse_usd(request.POST.get("amount", ""))
    except ValueError as error:
        raise BadRequest("Write the amount in dollars, such as 25 or 12.50.") from error
    with transaction.atomic():
        customers.lock_payer(organisation.pk)  # a button that is pressed twice makes one
        begun = TopUp.objects.filter(owner_id=organisation.pk, amount=amount, method=TopUp.Method.CHECKOUT)
        begun = begun.filter(state__in=TOP_UP_UNDER_WAY, created_at__gte=clock.now() - PRESSED_TWICE)
        made = begun.first() or topups.request_top_up(
            organisation.pk, amount, method=TopUp.Method.CHECKOUT, actor=actor_of(visitor)
        )
        transaction.on_commit(tasks.dispatch_due.delay, robust=True)
    return redirect("top-up-page", made.pk)


@page("GET")
def top_up_page(request: HttpRequest, visitor: Visitor, top_up_id: UUID) -> HttpResponseBase:
    """One top-up: the way to its payment, and what became of it."""
    return render(request, "portal/billing/top_up.html", _shown(visitor, top_up_id))


@page("GET")
def top_up_now(request: HttpRequest, visitor: Visitor, top_up_id: UUID) -> HttpResponseBase:
    """The part of that page that changes."""
    return render(request, "portal/billing/top_up_now.html", _shown(visitor, top_up_id))


def _shown(visitor: Visitor, top_up_id: UUID) -> dict[str, Any]:
    organisation = organisation_of(visitor, Scope.BILLING_READ, SEE)
    found = TopUp.objects.filter(pk=top_up_id, owner_id=organisation.pk).first()
    if found is None:
        raise TopUpNotFound
    return {"visitor": visitor, "top_up": found, "is_under_way": found.state in TOP_UP_UNDER_WAY}


def _movement(row: Transfer, owner_id: UUID) -> Movement:
    def text(units: int) -> str:
        return format_amount(units, code=row.asset.code, scale=row.asset.scale)

    sign = (row.credit.owner_id == owner_id) - (row.debit.owner_id == owner_id)
    change = sign * int(row.amount) if row.mode in MOVED else 0
    return Movement(
        at=row.created_at,
        why=row.get_code_display(),
        change=("+" if change > 0 else "") + text(change) if change else "",
        amount=text(int(row.amount)),
        where=f"{row.debit.kind} → {row.credit.kind}" + ("" if row.mode == TransferMode.SINGLE else f", {row.mode}"),
        job_id=row.job_id,
    )
