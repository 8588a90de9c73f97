"""A provider's people are notified by mail of another destination, and of a payout that failed or is stuck.

    notify_destination, notify_failure, notify_bank (in the transaction that did it)
        -> mailing.notify, one mail a person

Recipients are all owners, and whoever chose a destination before: who steals a login and removes the owners cannot
remove that.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from billing.models import BankLeg, Payout, PayoutSettings
from billing.notices import mailing
from marketplace.foundation.models import Event

EVENT_KIND: Final = "payout_settings"  # of the events that record who chose what
CHOICES_LOOKED_AT_MAX: Final = 20


def notify_destination(row: PayoutSettings) -> None:
    """Report the new destination, when it takes effect, and how to stop it."""
    asset = row.asset.code
    if row.next_from is None:
        subject = f"Your payouts in {asset} have a destination"
        text = f"Payouts in {asset} go to {row.destination} by {row.rail} from now on."
    else:
        subject = f"Your payouts in {asset} will go to another destination"
        text = (
            f"From {row.next_from:%Y-%m-%d %H:%M} UTC on, payouts in {asset} go to {row.next_destination} by"
            f" {row.next_rail}. Until then they go to {row.destination} by {row.rail}, as before."
        )
    text += (
        "\n\nWas it none of you? Then somebody has a login or a key of your organisation: change your password, revoke"
        " the keys that you do not know, and choose the old destination again, which stops the change at once:"
        "\n\n    souk provider pay-to OLD-DESTINATION"
    )
    _mail(row.provider_id, row.pk, f"destination:{row.pk}:{row.version}", subject, text)


def notify_failure(payout: Payout, row: PayoutSettings | None, *, cause: str, has_to_act: bool) -> None:
    """Report what did not arrive and why, and what comes next."""
    amount = payout.asset.show(int(payout.amount))
    if has_to_act or row is None or row.due_at is None:
        then = "Nothing is tried again by itself: see to the cause, then `souk provider pay-out`."
    else:
        then = f"The next try is on {row.due_at:%Y-%m-%d %H:%M} UTC."
    text = f"{amount} to {payout.destination} by {payout.rail}: {cause}\n\nThe amount is available again. {then}"
    subject = f"A payout of {amount} did not arrive"
    _mail(payout.provider_id, row.pk if row else payout.pk, f"failure:{payout.pk}:{payout.state}", subject, text)


def notify_bank(payout: Payout, leg: BankLeg, *, then: str) -> None:
    """Report that a payout is in the provider's account at the rail, and not at its bank."""
    amount = payout.asset.show(int(payout.amount))
    text = (
        f"{amount} are in your account {payout.destination} by {payout.rail}, and do not get to your bank:"
        f" {leg.message}\n\n{then} What Stripe still asks of your account: GET /api/v1/payout-account."
    )
    row = PayoutSettings.objects.filter(provider_id=payout.provider_id, asset_id=payout.asset_id).first()
    what = f"bank:{payout.pk}:{leg.state}:{leg.tries}"
    _mail(payout.provider_id, row.pk if row else payout.pk, what, f"A payout of {amount} is not at your bank", text)


def recipients(provider_id: UUID, settings_id: UUID) -> set[UUID]:
    """The recipients: owners, and those who chose before."""
    choices = Event.objects.filter(subject_kind=EVENT_KIND, subject_id=settings_id).order_by("-id")
    actors = choices.values_list("actor", flat=True)[:CHOICES_LOOKED_AT_MAX]
    return mailing.owners_of(provider_id) | {user_id for actor in actors if (user_id := _user_of(actor)) is not None}


def _mail(provider_id: UUID, settings_id: UUID, what: str, subject: str, text: str) -> None:
    what = f"payout:{what}"
    mailing.notify(recipients(provider_id, settings_id), what, subject=subject, text=text)


def _user_of(actor: str) -> UUID | None:
    """The user in an event's actor, "organisation:user"."""
    try:
        return UUID(actor.rsplit(":", 1)[-1])
    except ValueError:
        return None
