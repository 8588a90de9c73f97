"""What Stripe's events say of payouts that left: on their way to the bank, or reversed.

payout.*            in a provider's account: the rail is asked what became of our payout there
transfer.reversed   a reversal that we asked for is known by what we wrote on it; any other one was made by a person in
                    Stripe's dashboard: an alert, since no book of ours has it

An event names its account, and a payout counts only for the account that we paid it to: whoever has another account
moves nothing, whatever they write on payouts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from billing.fiat import events
from billing.fiat.errors import NotOurs
from billing.models import Alert, BankLeg, Payout, TransferReversal
from billing.money import MICROS_PER_CENT, format_usd
from billing.notices import alerts
from billing.payouts.outcomes import apply_outcomes
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.payout_rail import StripePayouts, return_mark
from billing.rails.stripe.records import Moved, Reversal

RAIL: Final = StripePayouts.name


@events.handles_connected("payout.paid", "payout.failed", "payout.canceled", "payout.updated")
def follow_bank_payout(named: Mapping[str, Any], account_id: str) -> Payout:
    """Ask the rail what became of the payout that this one carries on to the bank. Calls Stripe; raises NotOurs."""
    payout = _payout_of(named["id"], account_id)
    _follow(payout)
    return payout


@events.handles_event("transfer.reversed")
def check_reversals(named: Mapping[str, Any]) -> list[Reversal]:
    """Alert of every reversal of this transfer that nobody here asked for; which those are. Calls Stripe."""
    stripe = stripe_client.connect()
    moved = stripe.fetch_transfer(named["id"])
    payout = _payout_of_transfer(moved)
    by_hand = [one for one in stripe.list_reversals(moved.id) if not _is_ours(one, moved, payout)]
    for one in by_hand:
        _alert_by_hand(one, moved, payout)
    if payout is not None and by_hand:
        _follow(payout)
    return by_hand


def _follow(payout: Payout) -> None:
    apply_outcomes([payout], StripePayouts().find([payout]))


def _payout_of(bank_payout_id: str, account_id: str) -> Payout:
    """By the id that we kept, else by what we wrote on it; only in the account that we paid."""
    leg = BankLeg.objects.select_related("payout").filter(bank_payout_id=bank_payout_id).first()
    if leg is not None:
        if leg.payout.destination != account_id:
            raise NotOurs
        return leg.payout
    ours = Payout.objects.filter(rail=RAIL, destination=account_id)
    if not ours.exists():
        raise NotOurs  # before Stripe is asked: strangers' accounts make no work
    marks = stripe_client.connect().fetch_bank_payout(account_id, bank_payout_id).metadata
    payout = _of_id(ours, marks.get("payout_id", ""))
    if payout is None or BankLeg.objects.filter(payout=payout).exclude(bank_payout_id="").exists():
        raise NotOurs
    return payout


def _payout_of_transfer(moved: Moved) -> Payout | None:
    known = Payout.objects.filter(rail=RAIL, destination=moved.destination)
    return _of_id(known, moved.metadata.get("payout_id", ""))


def _is_ours(reversal: Reversal, moved: Moved, payout: Payout | None) -> bool:
    """Whether we asked for it: because the bank sent the payout back, or for a dispute of a card."""
    if payout is not None and reversal.metadata.get("outbox_id") == return_mark(payout):
        return True
    dispute_id = _uuid(reversal.metadata.get("dispute_id", ""))
    if dispute_id is None:
        return False
    return TransferReversal.objects.filter(dispute_id=dispute_id, stripe_transfer_id=moved.id).exists()


def _alert_by_hand(reversal: Reversal, moved: Moved, payout: Payout | None) -> None:
    key = f"transfer_reversed:{reversal.id}"
    if Alert.objects.filter(key=key, closed_at__isnull=False).exists():
        return  # an operator has seen to it; a later reversal of the same transfer does not bring it up again
    what = f"payout {payout.pk}" if payout is not None else "no payout that we know"
    amount = format_usd(reversal.amount_cents * MICROS_PER_CENT)
    alerts.raise_once(
        key,
        kind="transfer_reversed",
        severity=alerts.Severity.CRITICAL,
        subject=payout.pk if payout is not None else moved.id,
        message=(
            f"{amount} of transfer {moved.id} ({what}) came back by reversal {reversal.id}. Nobody asked for it here:"
            " somebody reversed it at Stripe. The books do not have it, and the reconciliation stops payouts for it."
            " Find out who did it, book it by `souk ledger correct`, and close this alert."
        ),
    )


def _of_id(payouts: QuerySet[Payout], text: str) -> Payout | None:
    payout_id = _uuid(text)
    return payouts.filter(pk=payout_id).first() if payout_id is not None else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
