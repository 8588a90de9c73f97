"""A customer pays in: requested here, opened at its rail through the outbox, credited on what the rail reports.

request_top_up   the request, and the call in the outbox             (one transaction)
open_top_up      the rail makes the page, or charges the card        (the outbox's handler, in calls.py)
apply_outcome    what the rail reports moves the top-up forward      (webhooks, the poller, the handler itself)
refresh          read its state from its rail                        (the poller)
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Sum

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, lock_accounts, open_accounts
from billing.charging import holds
from billing.fiat import claims, customers, rules
from billing.fiat.errors import CardsUnavailable, NotOurs, TopUpLimitReached, TopUpRefused, TopUpUnderWay
from billing.models import Account, Hold, TopUp
from billing.money import MICROS_PER_CENT, MICROS_PER_USD, format_usd
from billing.rails import crediting, registry
from billing.rails.errors import RailError
from billing.rails.fake.payment_rail import FakePayments, paid
from billing.rails.payments_in import PaymentFate, PaymentOutcome, Receipt, RequestedPayments, cost_reference
from billing.states.fiat import TOP_UP_UNDER_WAY, TopUpState
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock, outbox
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth

CALL: Final = "stripe.top_up"
DAY: Final = timedelta(days=1)
DECLINES_PER_DAY_MAX: Final = 10  # of one payer; more of them look like a trial of stolen cards
TOP_UPS_PER_DAY_MAX: Final = 200  # of one payer, whatever became of them
RELEASES_MAX: Final = 500  # in one tick; the next takes the next
OPERATOR: Final = AccountName(AccountKind.OPERATOR_CASH)

log = logging.getLogger(__name__)


def request_top_up(
    owner_id: UUID,
    amount: int,
    *,
    method: str,
    actor: str,
    card_id: UUID | None = None,
    save_card: bool = False,
    rail: str = "",
) -> TopUp:
    """Write the request down and have it made; the top-up is `requested` until then. Without `rail`: the first one on.

    Raises CardsUnavailable, TopUpRefused, TopUpLimitReached, TopUpUnderWay, CardNotFound.
    """
    chosen = _rail_for(method, rail)
    if method != TopUp.Method.CHECKOUT and settings.SOUK_STRIPE_TAX:
        raise CardsUnavailable("Tax is computed on the payment page only: pay there, not by a saved card.")
    _check_amount(amount)
    with transaction.atomic():
        customers.lock_payer(owner_id)
        _check_day(owner_id, amount)
        card = None if method == TopUp.Method.CHECKOUT else customers.find_card(owner_id, card_id)
        top_up = TopUp(owner_id=owner_id, amount=amount, method=method, card=card, actor=actor, rail=chosen.name)
        top_up.is_fake = registry.row_of(chosen.name).is_pretended
        try:
            with transaction.atomic():
                top_up.save(force_insert=True)
        except IntegrityError as error:
            raise TopUpUnderWay from error
        record_birth(top_up, actor=actor, data={"amount": str(amount), "method": method})
        url = chosen.page_url(top_up)
        if url:
            return advance(top_up, TopUpState.OPEN, reason="", checkout_url=url)
        outbox.enqueue(CALL, f"top_up:{top_up.pk}", {"top_up_id": str(top_up.pk), "save_card": save_card})
        return top_up


def is_new_payer(owner_id: UUID) -> bool:
    """Whether the first money that came from this owner is younger than the probation, or there is none."""
    since = clock.now() - timedelta(days=settings.SOUK_TOP_UP_NEW_DAYS)
    return not TopUp.objects.filter(owner_id=owner_id, credited_at__lte=since).exists()


def apply_opened(top_up: TopUp, outcome: PaymentOutcome) -> TopUp:
    """What the rail answered when the payment was opened: its page or its id is kept, or it has ended already."""
    top_up = apply_outcome(top_up, outcome)
    if outcome.fate == PaymentFate.UNDER_WAY and top_up.state == TopUpState.REQUESTED:
        return advance(
            top_up,
            TopUpState.OPEN,
            session_id=outcome.page_id,
            checkout_url=outcome.page_url,
            intent_id=outcome.payment_id,
        )
    return top_up


def apply_outcome(top_up: TopUp, outcome: PaymentOutcome) -> TopUp:
    """Move a top-up to where its rail reports it, any number of times and in any order: paid is credited once, in
    any state before; refused or expired ends it."""
    if outcome.fate == PaymentFate.PAID:
        top_up = _credit(top_up, outcome)
        claims.settle(top_up.owner_id)
    elif outcome.fate == PaymentFate.FAILED:
        return end_top_up(top_up, TopUpState.FAILED, reason=outcome.reason, message=outcome.message)
    elif outcome.fate == PaymentFate.EXPIRED:
        return end_top_up(top_up, TopUpState.EXPIRED, reason=outcome.reason, message=outcome.message)
    else:
        top_up.refresh_from_db()
    return top_up


def refresh(top_up: TopUp) -> TopUp:
    """Read the top-up's state from its rail, and apply it. Calls the rail; raises RailUnknown, RailError."""
    return apply_outcome(top_up, registry.open_payments(top_up.rail).find(top_up))


def end_top_up(top_up: TopUp, state: TopUpState, *, reason: str, message: str) -> TopUp:
    """No money came; nothing changes for a top-up that has ended already."""
    with transaction.atomic():
        top_up = TopUp.objects.select_for_update().get(pk=top_up.pk)
        if top_up.state not in TOP_UP_UNDER_WAY:
            return top_up
        top_up = advance(top_up, state, reason=reason[:64], actor=top_up.rail, message=message)
        if top_up.method == TopUp.Method.AUTOMATIC:
            rules.count_failure(top_up.owner_id, reason=reason)
        log.info("A top-up ended without money. top_up_id=%s state=%s reason=%s", top_up.pk, state, reason)
        return top_up


def pay_fake(top_up_id: UUID) -> TopUp:
    """Credit a pretended payment, once; raises FakeMoneyRefused, NotOurs."""
    top_up = TopUp.objects.filter(pk=top_up_id, rail=FakePayments.name).first() if FakePayments.is_on() else None
    if top_up is None:
        raise NotOurs
    return apply_outcome(top_up, paid(top_up))


def release_waiting(now: datetime | None = None) -> int:
    """Make spendable what waited because its payer was new; how many top-ups that was."""
    now = now or clock.now()
    waiting = Hold.objects.open().filter(
        job_id__in=TopUp.objects.filter(state=TopUpState.SUCCEEDED, spendable_at__lte=now).values("pk")
    )
    ids = list(waiting.values_list("job_id", flat=True)[:RELEASES_MAX])
    for top_up_id in ids:
        holds.release_hold(top_up_id, reason="wait is over")
    return len(ids)


def _check_amount(amount: int) -> None:
    least, most = (settings.SOUK_TOP_UP_USD_MIN * MICROS_PER_USD, settings.SOUK_TOP_UP_USD_MAX * MICROS_PER_USD)
    if not least <= amount <= most or amount % MICROS_PER_CENT:
        raise TopUpRefused(least=format_usd(least), most=format_usd(most), amount=_shown(amount))


def _shown(amount: int) -> str:
    return format_usd(amount)[:40]


def _check_day(owner_id: UUID, amount: int) -> None:
    """Under the payer's lock, so that two requests cannot each be the last one that fits."""
    asked = TopUp.objects.filter(owner_id=owner_id, created_at__gt=clock.now() - DAY)
    if asked.filter(state=TopUpState.FAILED).count() >= DECLINES_PER_DAY_MAX:
        text = "Too many of your payments were refused within 24 hours. Ask your bank, and try again tomorrow."
        raise TopUpLimitReached(text)
    if asked.count() >= TOP_UPS_PER_DAY_MAX:
        raise TopUpLimitReached(f"At most {TOP_UPS_PER_DAY_MAX} top-ups can be asked for within 24 hours.")
    alive = asked.exclude(state__in=[TopUpState.FAILED, TopUpState.EXPIRED])
    used = alive.aggregate(used=Sum("amount"))["used"] or 0
    dollars = (
        min(settings.SOUK_TOP_UP_NEW_USD_DAY_MAX, settings.SOUK_TOP_UP_USD_DAY_MAX)
        if is_new_payer(owner_id)
        else settings.SOUK_TOP_UP_USD_DAY_MAX
    )
    if used + amount > dollars * MICROS_PER_USD:
        raise TopUpLimitReached(limit=format_usd(dollars * MICROS_PER_USD), used=format_usd(int(used)))


def _rail_for(method: str, name: str) -> RequestedPayments:
    """The rail of this name, or the first one on, that takes payments by this method; raises CardsUnavailable."""
    for rail in registry.requested_payments_on():
        if name in {"", rail.name} and method in rail.methods:
            return rail
    raise CardsUnavailable


def _credit(top_up: TopUp, outcome: PaymentOutcome) -> TopUp:
    """Gross to the customer, the rail's price to expenses, once; what is paid above the request is tax."""
    receipt, rail, row = outcome.receipt, registry.open_payments(top_up.rail), registry.row_of(top_up.rail)
    if receipt is None:
        raise RailError(f"The rail {top_up.rail} reports that {top_up.pk} is paid, without a receipt")
    group_id = new_id()
    with transaction.atomic():
        top_up = TopUp.objects.select_for_update().get(pk=top_up.pk)
        if top_up.credited_at is not None or not rail.claim(receipt, group_id):
            return top_up
        now, amount = clock.now(), min(receipt.amount, top_up.amount)
        tax = receipt.amount - amount
        balance = AccountName(AccountKind.CUSTOMER_AVAILABLE, top_up.owner_id)
        names = [AccountName(row.mirror), AccountName(row.cost), OPERATOR, balance]
        lock_accounts({account.pk for account in open_accounts(names) if account.is_summed})
        # A frozen balance keeps it in by itself, and gives nothing to set aside.
        is_frozen = Account.objects.get(pk=balance.id).is_frozen
        must_wait = not (is_frozen or row.is_pretended) and _is_too_much_at_once(top_up, amount)
        crediting.credit(rail, receipt, at_most=amount)
        _post_cost(row, receipt, tax=tax, group_id=group_id)
        if must_wait:
            # Set aside under the top-up's own id, so that nothing can spend it before it is let go.
            holds.place_hold(owner_id=top_up.owner_id, job_id=top_up.pk, amount=amount)
        wait = timedelta(seconds=settings.SOUK_TOP_UP_NEW_WAIT_SECONDS if must_wait else 0)
        top_up = advance(
            top_up,
            TopUpState.SUCCEEDED,
            reason=outcome.reason,
            actor=receipt.payer,
            data={"paid": str(receipt.amount), "fee": str(receipt.cost), "booking": receipt.reference},
            message="",
            intent_id=outcome.payment_id,
            charge_id=outcome.charge_id,
            amount=amount,
            tax=tax,
            fee=receipt.cost,
            credited_at=now,
            spendable_at=now + wait,
        )
        if top_up.method == TopUp.Method.AUTOMATIC:
            rules.count_success(top_up.owner_id)
        return top_up


def _is_too_much_at_once(top_up: TopUp, amount: int) -> bool:
    """Whether a new payer could spend more than the limit with it, with all that they requested shortly before.

    Counted by the time of the request, so that it does not matter which one is reported first.
    """
    if not is_new_payer(top_up.owner_id):
        return False
    since = top_up.created_at - timedelta(seconds=settings.SOUK_TOP_UP_NEW_WAIT_SECONDS)
    before = TopUp.objects.filter(owner_id=top_up.owner_id, created_at__gt=since, created_at__lt=top_up.created_at)
    asked = before.exclude(state__in=[TopUpState.FAILED, TopUpState.EXPIRED]).aggregate(sum=Sum("amount"))["sum"] or 0
    return int(asked) + amount > settings.SOUK_TOP_UP_NEW_USD_AT_ONCE_MAX * MICROS_PER_USD


def _post_cost(row: registry.RailRow, receipt: Receipt, *, tax: int, group_id: UUID) -> None:
    names = [AccountName(row.mirror), AccountName(row.cost), OPERATOR]
    mirror, fees, operator = open_accounts(names)
    ref, costs = receipt.reference, []
    if receipt.cost:
        code = TransferCode.DEPOSIT_COST
        costs.append(ledger.NewTransfer(fees, mirror, receipt.cost, code, external_ref=cost_reference(ref)))
    if tax:
        # Collected for the tax office: the operator owes it, and it is nobody's balance.
        costs.append(ledger.NewTransfer(mirror, operator, tax, TransferCode.RAIL_MOVE, external_ref=f"{ref}:tax"))
    if costs:
        ledger.post(costs, group_id=group_id)
