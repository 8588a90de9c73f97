"""Stripe's events: stored once, processed any number of times in any order.

store      one row per event id, from the webhook or the poller
process    an event only names an object: its handler reads the object's state at Stripe now, and moves ours forward.
           What happens in a provider's account there is read where it is about the account itself, or about what we
           paid to it; a type that concerns money and that nothing here knows raises an alert
poll       Stripe's own list adds the events that never arrived
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from django.db import transaction

from billing.fiat import accounts, chargebacks, customers, fraud_warnings, intents, refunds
from billing.fiat.errors import NotOurs
from billing.models import StripeCursor, StripeEvent
from billing.notices import alerts
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.records import EventRecord, StripeMissing, StripeTooLong, id_of
from marketplace.foundation import clock
from marketplace.foundation.exclusive import only_one
from provider_agent.protocol.backoff import backoff_seconds

EVENTS_PER_RUN_MAX: Final = 500
ATTEMPTS_MAX: Final = 40  # with the pauses below: more than a day
PAUSE_SECONDS_FIRST: Final = 30  # longer than a handler takes, so that two workers seldom do the same
PAUSE_SECONDS_MAX: Final = 3600
ERROR_CHARACTERS_MAX: Final = 2000
POLL_OVERLAP: Final = timedelta(minutes=15)
POLL_FIRST: Final = timedelta(days=1)
KEEP_DAYS: Final = 90  # Stripe lists its events for 30
FORGOTTEN_MAX: Final = 5_000  # by one poll; the next forgets the next
CURSOR: Final = "events"
TOO_LONG: Final = "stripe_events_too_long"  # the alert's key


Handler = Callable[[Mapping[str, Any]], object]
ConnectedHandler = Callable[[Mapping[str, Any], str], object]  # with the id of the account that it happened in
ConnectedT = TypeVar("ConnectedT", bound=ConnectedHandler)
HandlerT = TypeVar("HandlerT", bound=Handler)
Outcome = StripeEvent.Outcome

log = logging.getLogger(__name__)


def handles_event(*types: str) -> Callable[[HandlerT], HandlerT]:
    """Register a handler of what happens in our own account, for packages that stand above this one."""

    def register(handler: HandlerT) -> HandlerT:
        HANDLERS.update(dict.fromkeys(types, handler))
        return handler

    return register


def handles_connected(*types: str) -> Callable[[ConnectedT], ConnectedT]:
    """The same of what happens in a provider's account: the handler has to look whose account it is."""

    def register(handler: ConnectedT) -> ConnectedT:
        CONNECTED.update(dict.fromkeys(types, handler))
        return handler

    return register


def is_handled(type_: str, account: str) -> bool:
    """Whether a handler reads events of this type; `account` is empty for our own."""
    return type_ in (CONNECTED if account else HANDLERS)


def store(records: Iterable[EventRecord]) -> int:
    """Keep the events that are not kept yet; how many there were to keep."""
    rows = [
        StripeEvent(event_id=one.id, type=one.type, account=one.account, created=one.at, payload=dict(one.payload))
        for one in records
    ]
    StripeEvent.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def process_due() -> int:
    """Handle the events that wait; how many found their end. Any number of workers may do this at once."""
    done = 0
    waiting = StripeEvent.objects.filter(processed_at=None, next_at__lte=clock.now()).order_by("received_at", "created")
    for event in waiting[:EVENTS_PER_RUN_MAX]:
        if _claim(event):
            done += _process(event)
    return done


def poll() -> int:
    """Store the events that Stripe lists since the last poll; how many it listed. Calls Stripe."""
    if not stripe_client.is_configured():
        return 0
    with only_one("billing.fiat.poll") as is_mine:
        if not is_mine:
            return 0
        begun = clock.now()
        cursor, _ = StripeCursor.objects.get_or_create(name=CURSOR, defaults={"seen_until": begun - POLL_FIRST})
        received = 0
        try:
            for records in stripe_client.connect().list_events(cursor.seen_until - POLL_OVERLAP):
                store(records)
                received += len(records)
                # Stripe's own time, not ours: the two clocks need not agree. Kept with each part, so that a list which
                # is too long for one poll, or breaks off, is gone on with where it was left.
                cursor.seen_until = max([cursor.seen_until, *(one.at for one in records)])
                cursor.save(update_fields=["seen_until"])
        except StripeTooLong as error:
            alerts.raise_once(
                TOO_LONG, kind="stripe_backlog", message=f"Stripe has more events than one poll reads. {error}"
            )
            return received
        alerts.close(TOO_LONG)
        forget_old()
        return received


def forget_old() -> int:
    """Delete events that found their end long ago; how many. Stripe no longer lists them."""
    until = clock.now() - timedelta(days=KEEP_DAYS)
    old = StripeEvent.objects.filter(processed_at__lt=until, created__lt=until).exclude(outcome=Outcome.GIVEN_UP)
    deleted, _ = StripeEvent.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:FORGOTTEN_MAX])).delete()
    return deleted


def try_again(event_ids: Iterable[str]) -> int:
    """Put events that were given up back into the queue; how many."""
    ids = list(event_ids)
    for event_id in ids:
        alerts.close(_alert_key(event_id))
    given_up = StripeEvent.objects.filter(pk__in=ids, outcome=Outcome.GIVEN_UP)
    return given_up.update(outcome=Outcome.WAITING, processed_at=None, attempts=0, next_at=clock.now())


def _claim(event: StripeEvent) -> bool:
    """Count the attempt and put the next one off; of two workers one gets it."""
    pause = backoff_seconds(event.attempts + 1, first=PAUSE_SECONDS_FIRST, most=PAUSE_SECONDS_MAX)
    same = StripeEvent.objects.filter(pk=event.pk, processed_at=None, attempts=event.attempts)
    event.attempts += 1
    return same.update(attempts=event.attempts, next_at=clock.now() + timedelta(seconds=pause)) == 1


def _process(event: StripeEvent) -> bool:
    if not is_handled(event.type, event.account):
        _alert_unknown(event)
        return _finish(event, Outcome.IGNORED)
    named = event.payload["data"]["object"]
    try:
        if event.account:
            CONNECTED[event.type](named, event.account)
        else:
            HANDLERS[event.type](named)
    except (NotOurs, StripeMissing):
        return _finish(event, Outcome.IGNORED)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
        log.warning("An event could not be handled. event_id=%s type=%s error=%s", event.pk, event.type, text)
        if event.attempts >= ATTEMPTS_MAX:
            return _give_up(event, text)
        StripeEvent.objects.filter(pk=event.pk).update(error=text)
        return False
    return _finish(event, Outcome.HANDLED)


def _give_up(event: StripeEvent, text: str) -> bool:
    message = f"An event of Stripe ({event.type}) was given up: {text}. Once its cause is fixed, try it again."
    with transaction.atomic():
        alerts.raise_once(_alert_key(event.pk), kind="stripe_event", subject=event.pk, message=message)
        return _finish(event, Outcome.GIVEN_UP, text)


def _alert_unknown(event: StripeEvent) -> None:
    """Once a type, while the alert is open. Whatever strangers do in accounts of their own raises none."""
    if event.account or event.type in NO_NEWS or event.type.partition(".")[0] not in MONEY:
        return
    alerts.raise_once(
        f"stripe_event_type:{event.type}",
        kind="stripe_event_type",
        subject=event.pk,
        message=(
            f"Stripe reports {event.type}, which concerns money and which nothing here handles. Look at event"
            f" {event.pk} in Stripe's dashboard. Book what the reconciliation misses by `souk ledger correct`, and"
            " close this alert."
        ),
    )


def _alert_key(event_id: str) -> str:
    return f"stripe_event:{event_id}"


def _finish(event: StripeEvent, outcome: StripeEvent.Outcome, error: str = "") -> bool:
    waiting = StripeEvent.objects.filter(pk=event.pk, processed_at=None)
    return waiting.update(processed_at=clock.now(), outcome=outcome, error=error) == 1


def _on_intent(named: Mapping[str, Any]) -> object:
    return intents.refresh_intent(named["id"])


def _on_charge(named: Mapping[str, Any]) -> object:
    intent_id = id_of(named.get("payment_intent"))
    if not intent_id:
        raise NotOurs
    return intents.refresh_intent(intent_id)


def _on_refunded(named: Mapping[str, Any]) -> object:
    _on_charge(named)  # the top-up is credited before any of it goes back
    return refunds.refresh_refunds_of(named["id"])


def _on_refund(named: Mapping[str, Any]) -> object:
    intent_id = id_of(named.get("payment_intent"))
    if intent_id:
        intents.refresh_intent(intent_id)
    return refunds.refresh_refund(named["id"])


def _on_page(named: Mapping[str, Any]) -> object:
    return intents.refresh_page(named["id"])


def _on_dispute(named: Mapping[str, Any]) -> object:
    return chargebacks.refresh_dispute(named["id"])


def _on_warning(named: Mapping[str, Any]) -> object:
    return fraud_warnings.refresh_warning(named["id"])


def _on_account(named: Mapping[str, Any]) -> object:
    return accounts.refresh(named["id"])


def _on_card(named: Mapping[str, Any]) -> object:
    """A removed card does not name its owner any more: the owner's list is read, if we know the card."""
    customer_id = id_of(named.get("customer")) or customers.customer_of_card(named["id"])
    return customers.refresh_cards(customer_id)


HANDLERS: Final[dict[str, Handler]] = {
    "payment_intent.succeeded": _on_intent,
    "payment_intent.payment_failed": _on_intent,
    "payment_intent.canceled": _on_intent,
    "payment_intent.requires_action": _on_intent,
    "charge.succeeded": _on_charge,
    "charge.updated": _on_charge,
    "charge.refunded": _on_refunded,
    "refund.created": _on_refund,
    "refund.updated": _on_refund,
    "refund.failed": _on_refund,
    "charge.refund.updated": _on_refund,
    "charge.dispute.created": _on_dispute,
    "charge.dispute.updated": _on_dispute,
    "charge.dispute.closed": _on_dispute,
    "charge.dispute.funds_withdrawn": _on_dispute,
    "charge.dispute.funds_reinstated": _on_dispute,
    "radar.early_fraud_warning.created": _on_warning,
    "radar.early_fraud_warning.updated": _on_warning,
    "checkout.session.completed": _on_page,
    "checkout.session.async_payment_succeeded": _on_page,
    "checkout.session.async_payment_failed": _on_page,
    "checkout.session.expired": _on_page,
    "setup_intent.succeeded": _on_card,
    "payment_method.attached": _on_card,
    "payment_method.updated": _on_card,
    "payment_method.detached": _on_card,
    "account.updated": _on_account,
}
CONNECTED: Final[dict[str, ConnectedHandler]] = {
    # The account is named by the event's object; a stranger's is none that we know.
    "account.updated": lambda named, account: _on_account(named),
}
# What concerns money, and the types of it that say nothing which no other event, or the reconciliation, says.
MONEY: Final = frozenset({"balance", "charge", "payout", "refund", "reserve", "topup", "transfer"})
NO_NEWS: Final = frozenset(
    {
        "balance.available",
        "charge.captured",
        "charge.failed",
        "charge.pending",
        "payout.created",
        "payout.paid",
        "payout.reconciliation_completed",
        "payout.updated",
        "topup.created",
        "topup.succeeded",
        "transfer.created",
        "transfer.updated",
    }
)
