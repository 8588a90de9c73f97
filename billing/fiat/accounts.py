"""Providers' accounts at Stripe: created once, filled in by the provider on Stripe's page, described by Stripe."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing.fiat.errors import CardsUnavailable, NotOurs, PayoutAccountMissing
from billing.models import BankLeg, ConnectAccount
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.records import Connected
from billing.states import BankState
from marketplace.foundation import clock, outbox
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.ids import new_id

CALL: Final = "stripe.account"
REFRESHED_MAX: Final = 200  # in one tick, those whose description is oldest first


def request_account(owner_id: UUID, *, country: str, email: str = "") -> ConnectAccount:
    """Write down that this provider wants to be paid through Stripe; a repeat returns the first. CardsUnavailable.

    One that Stripe refused, as for a country that it does not serve, is requested again with the new details.
    """
    if not stripe_client.is_configured():
        raise CardsUnavailable("This marketplace pays nobody through Stripe: it has no key. Choose another way.")
    with transaction.atomic():
        fields = {"country": country.upper(), "email": email}
        account, is_new = ConnectAccount.objects.select_for_update().get_or_create(owner_id=owner_id, defaults=fields)
        if not is_new and not account.stripe_id and account.disabled_reason:
            account.country, account.email, account.disabled_reason, is_new = country.upper(), email, "", True
            account.save(update_fields=["country", "email", "disabled_reason"])
        if is_new:
            outbox.enqueue(CALL, f"account:{account.pk}:{new_id()}", {"owner_id": str(owner_id)})
        return account


def create(owner_id: UUID, *, is_repeat: bool = False) -> str:
    """Make the account at Stripe, once; a repeat searches for it first. Calls Stripe."""
    account = ConnectAccount.objects.get(owner_id=owner_id)
    if account.stripe_id:
        return account.stripe_id
    made = stripe_client.connect().create_account(
        owner_id=str(owner_id), country=account.country, email=account.email, is_repeat=is_repeat
    )
    # Its owner's address was for Stripe; who is erased here must not live on in this row.
    mine = ConnectAccount.objects.filter(pk=account.pk, stripe_id=None)
    mine.update(stripe_id=made.id, email="", **_described(made))
    return made.id


def refuse(owner_id: UUID, message: str) -> None:
    """Stripe makes no such account: its owner reads why, and may request another."""
    ConnectAccount.objects.filter(owner_id=owner_id, stripe_id=None).update(disabled_reason=message[:120])


def open_onboarding(owner_id: UUID) -> str:
    """A page at Stripe where the provider fills in what is missing; for minutes, and once. Calls Stripe."""
    account = find(owner_id)
    back = f"{settings.SOUK_API_URL}/"
    return stripe_client.connect().create_account_link(account.stripe_id or "", refresh_url=back, return_url=back)


def find(owner_id: UUID) -> ConnectAccount:
    """The owner's account, made at Stripe already; raises PayoutAccountMissing."""
    account = ConnectAccount.objects.filter(owner_id=owner_id).exclude(stripe_id=None).first()
    if account is None:
        raise PayoutAccountMissing
    return account


def refresh(stripe_id: str) -> ConnectAccount:
    """Read an account's state at Stripe, and store it. Calls Stripe; raises NotOurs."""
    known = ConnectAccount.objects.filter(stripe_id=stripe_id).first()
    if known is None:
        raise NotOurs
    reported = stripe_client.connect().fetch_account(stripe_id)
    ConnectAccount.objects.filter(stripe_id=stripe_id).update(**_described(reported))
    if reported.is_payable and not known.is_payable:
        # What Stripe refused to send on to the bank, as a rule because of this, is tried at once.
        refused = BankLeg.objects.filter(payout__destination=stripe_id, state=BankState.REFUSED)
        refused.update(next_at=clock.now())
    return ConnectAccount.objects.get(stripe_id=stripe_id)


def refresh_oldest() -> int:
    """Refresh the accounts whose last refresh is the oldest; how many."""
    oldest = ConnectAccount.objects.exclude(stripe_id=None).order_by("checked_at", "pk")[:REFRESHED_MAX]
    done = 0
    for account in oldest:
        with log_failures("An account at Stripe could not be asked after.", account=account.stripe_id):
            refresh(account.stripe_id or "")
            done += 1
    return done


def _described(reported: Connected) -> dict[str, object]:
    return {
        "is_submitted": reported.is_submitted,
        "is_payable": reported.is_payable,
        "requirements": list(reported.requirements),
        "disabled_reason": reported.disabled_reason[:120],
        "checked_at": clock.now(),
    }
