"""A customer pays in: asked for here, made through the outbox, credited on what Stripe says when it is asked again.

request_top_up   the wish, and the call in the outbox           (one transaction)
open_top_up      the page or the charge, at Stripe              (the outbox's handler)
refresh_intent   ask Stripe what became of it, and move forward (webhooks, the poller, the handler itself)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Sum

from billing import deposits, holds, ledger
from billing.chart import AccountName, open_accounts
from billing.fiat import booking, claims, customers, rules
from billing.fiat.errors import CardsUnavailable, NotOurs, TopUpLimitReached, TopUpRefused, TopUpUnderWay
from billing.fiat.states import TOP_UP_UNDER_WAY, TopUpState
from billing.kinds import AccountKind, TransferCode
from billing.models import Account, Hold, TopUp
from billing.money import MICROS_PER_CENT, MICROS_PER_USD, format_usd
from billing.rails import fake_cards, stripe_rail
from billing.rails.base import RailError
from billing.rails.stripe_records import Intent
from marketplace.foundation import clock, outbox
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth

CALL: Final = "stripe.top_up"
DAY: Final = timedelta(days=1)
DECLINES_PER_DAY_MAX: Final = 10  # of one payer; more is somebody who tries out cards
TOP_UPS_PER_DAY_MAX: Final = 200  # of one payer, whatever became of them
ACTOR: Final = "stripe"
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
) -> TopUp:
    """Write the wish down and have it made; the top-up is `requested` until then.

    Raises CardsUnavailable, TopUpRefused, TopUpLimitReached, TopUpUnderWay, CardNotFound.
    """
    is_fake = not stripe_rail.is_configured()
    if is_fake and not (fake_cards.is_on() and method == TopUp.Method.CHECKOUT):
        raise CardsUnavailable
    if method != TopUp.Method.CHECKOUT and settings.SOUK_STRIPE_TAX:
        raise CardsUnavailable("Tax is computed on the payment page only: pay there, not by a saved card.")
    _check_amount(amount)
    with transaction.atomic():
        customers.lock_payer(owner_id)
        _check_day(owner_id, amount)
        card = None if method == TopUp.Method.CHECKOUT else customers.find_card(owner_id, card_id)
        top_up = TopUp(owner_id=owner_id, amount=amount, method=method, card=card, actor=actor, is_fake=is_fake)
        try:
            with transaction.atomic():
                top_up.save(force_insert=True)
        except IntegrityError as error:
            raise TopUpUnderWay from error
        record_birth(top_up, actor=actor, data={"amount": str(amount), "method": method})
        if is_fake:
            return advance(top_up, TopUpState.OPEN, reason="", checkout_url=fake_cards.url_of(top_up.pk))
        outbox.enqueue(CALL, f"top_up:{top_up.pk}", {"top_up_id": str(top_up.pk), "save_card": save_card})
        return top_up


def is_new_payer(owner_id: UUID) -> bool:
    """Whether the first money that came from this owner is younger than the probation, or there is none."""
    since = clock.now() - timedelta(days=settings.SOUK_TOP_UP_NEW_DAYS)
    return not TopUp.objects.filter(owner_id=owner_id, credited_at__lte=since).exists()


def refresh_intent(intent_id: str) -> TopUp:
    """Ask Stripe what became of a payment, and move its top-up forward. Calls Stripe; raises NotOurs."""
    return apply_intent(stripe_rail.door().fetch_intent(intent_id))


def apply_intent(intent: Intent) -> TopUp:
    """What Stripe says now of a payment: paid is credited, whatever we thought of it; refused ends the top-up."""
    top_up = top_up_of(intent.metadata)
    if intent.status == "succeeded":
        top_up = _credit(top_up, intent)
        claims.settle(top_up.owner_id)
        return top_up
    # On Stripe's page a customer may try another card, so only its expiry ends such a top-up.
    is_over = intent.status in {"requires_payment_method", "requires_action", "canceled"}
    if is_over and top_up.method != TopUp.Method.CHECKOUT:
        reason, message = intent.error_code or intent.status, intent.error_message or "The card was not charged."
        return end_top_up(top_up, TopUpState.FAILED, reason=reason, message=message)
    return top_up


def top_up_of(metadata: Mapping[str, str]) -> TopUp:
    """The top-up that something at Stripe was made for, by what we wrote on it; raises NotOurs."""
    try:
        top_up_id, owner_id = UUID(metadata["top_up_id"]), UUID(metadata["organisation_id"])
    except (KeyError, ValueError) as error:
        raise NotOurs from error
    top_up = TopUp.objects.filter(pk=top_up_id, owner_id=owner_id).first()
    if top_up is None:
        raise NotOurs
    return top_up


def end_top_up(top_up: TopUp, state: TopUpState, *, reason: str, message: str) -> TopUp:
    """No money came; nothing changes for a top-up that has ended already."""
    with transaction.atomic():
        top_up = TopUp.objects.select_for_update().get(pk=top_up.pk)
        if top_up.state not in TOP_UP_UNDER_WAY:
            return top_up
        top_up = advance(top_up, state, reason=reason[:64], actor=ACTOR, message=message)
        if top_up.method == TopUp.Method.AUTOMATIC:
            rules.count_failure(top_up.owner_id, reason=reason)
        log.info("A top-up ended without money. top_up_id=%s state=%s reason=%s", top_up.pk, state, reason)
        return top_up


def pay_fake(top_up_id: UUID) -> TopUp:
    """Credit a pretended payment, once; raises FakeMoneyRefused, NotOurs."""
    if not fake_cards.is_on():
        raise NotOurs
    with transaction.atomic():
        top_up = TopUp.objects.select_for_update().filter(pk=top_up_id, is_fake=True).first()
        if top_up is None:
            raise NotOurs
        if top_up.credited_at is None:
            reference = f"fake card {top_up.pk}"
            deposits.credit(top_up.owner_id, top_up.amount, reference=reference, actor="fake", source=fake_cards.SOURCE)
            advance(top_up, TopUpState.SUCCEEDED, reason="fake", credited_at=clock.now(), spendable_at=clock.now())
        return top_up


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


def _credit(top_up: TopUp, intent: Intent) -> TopUp:
    """Gross to the customer, the fee to expenses, once; what is paid above the wish is tax."""
    entry = intent.booking
    if entry is None:
        raise RailError(f"{intent.id} is paid, and Stripe does not say yet what it cost")
    group_id = new_id()
    with transaction.atomic():
        top_up = TopUp.objects.select_for_update().get(pk=top_up.pk)
        if top_up.credited_at is not None or not booking.take(entry, group_id):
            return top_up
        now, paid = clock.now(), booking.micros(entry.amount_cents)
        amount, fee = min(paid, top_up.amount), booking.micros(entry.fee_cents)
        balance = AccountName(AccountKind.CUSTOMER_AVAILABLE, top_up.owner_id)
        booking.lock(OPERATOR, balance)
        # A frozen balance keeps it in by itself, and gives nothing to set aside.
        must_wait = not Account.objects.get(pk=balance.id).is_frozen and _is_too_much_at_once(top_up, amount)
        deposits.credit(top_up.owner_id, amount, reference=entry.id, actor=ACTOR, source=deposits.STRIPE)
        _post_cost(entry.id, fee=fee, tax=paid - amount, group_id=group_id)
        if must_wait:
            # Set aside under the top-up's own id, so that nothing can spend it before it is let go.
            holds.place_hold(owner_id=top_up.owner_id, job_id=top_up.pk, amount=amount)
        wait = timedelta(seconds=settings.SOUK_TOP_UP_NEW_WAIT_SECONDS if must_wait else 0)
        top_up = advance(
            top_up,
            TopUpState.SUCCEEDED,
            reason="",
            actor=ACTOR,
            data={"paid": str(paid), "fee": str(fee), "booking": entry.id},
            message="",
            intent_id=intent.id,
            charge_id=intent.charge_id,
            amount=amount,
            tax=paid - amount,
            fee=fee,
            credited_at=now,
            spendable_at=now + wait,
        )
        if top_up.method == TopUp.Method.AUTOMATIC:
            rules.count_success(top_up.owner_id)
        return top_up


def _is_too_much_at_once(top_up: TopUp, amount: int) -> bool:
    """Whether a new payer could spend more than the limit with it, all that they asked for shortly before counted.

    By when they were asked for, so that it does not matter which one is heard of first.
    """
    if not is_new_payer(top_up.owner_id):
        return False
    since = top_up.created_at - timedelta(seconds=settings.SOUK_TOP_UP_NEW_WAIT_SECONDS)
    before = TopUp.objects.filter(owner_id=top_up.owner_id, created_at__gt=since, created_at__lt=top_up.created_at)
    asked = before.exclude(state__in=[TopUpState.FAILED, TopUpState.EXPIRED]).aggregate(sum=Sum("amount"))["sum"] or 0
    return int(asked) + amount > settings.SOUK_TOP_UP_NEW_USD_AT_ONCE_MAX * MICROS_PER_USD


def _post_cost(ref: str, *, fee: int, tax: int, group_id: UUID) -> None:
    stripe, fees, operator = open_accounts([booking.PLATFORM, booking.FEES, OPERATOR])
    costs = []
    if fee:
        costs.append(
            ledger.NewTransfer(fees, stripe, fee, TransferCode.DEPOSIT_COST, external_ref=booking.fee_ref(ref))
        )
    if tax:
        # Collected for the tax office: the operator owes it, and it is nobody's balance.
        costs.append(ledger.NewTransfer(stripe, operator, tax, TransferCode.RAIL_MOVE, external_ref=f"{ref}:tax"))
    ledger.post(costs, group_id=group_id)
