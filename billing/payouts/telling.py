"""A provider's people are told by mail of what touches their payouts: another destination, and a payout that failed.

    tell_destination, tell_failure (in the transaction that did it) -> outbox -> send_payout_mail, one mail a person

Told are all owners, and whoever chose a destination before: who steals a login and removes the owners cannot remove
that. People are named by id until the mail is sent, so that the outbox keeps no address of anybody who was erased.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.conf import settings
from django.core.mail import send_mail

from billing.dispatch import handles
from billing.models import Payout, PayoutSettings
from marketplace.accounts.models import Membership, Role, User
from marketplace.foundation import outbox
from marketplace.foundation.models import Event, OutboxMessage

MAIL_KIND: Final = "payouts.mail"
EVENT_KIND: Final = "payout_settings"  # of the events that say who chose what
OWNERS_MAX: Final = 50
CHOICES_LOOKED_AT_MAX: Final = 20


def tell_destination(row: PayoutSettings) -> None:
    """Say where the money will go from when on, and how to stop it."""
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


def tell_failure(payout: Payout, row: PayoutSettings | None, *, cause: str, has_to_act: bool) -> None:
    """Say what did not arrive and why, and what comes next."""
    amount = payout.asset.show(int(payout.amount))
    if has_to_act or row is None or row.due_at is None:
        then = "Nothing is tried again by itself: see to the cause, then `souk provider pay-out`."
    else:
        then = f"The next try is on {row.due_at:%Y-%m-%d %H:%M} UTC."
    text = f"{amount} to {payout.destination} by {payout.rail}: {cause}\n\nThe amount is available again. {then}"
    subject = f"A payout of {amount} did not arrive"
    _mail(payout.provider_id, row.pk if row else payout.pk, f"failure:{payout.pk}:{payout.state}", subject, text)


@handles(MAIL_KIND)
def send_payout_mail(message: OutboxMessage) -> str:
    """Send one person one mail. After a crash it may go out twice: better than not at all."""
    user = User.objects.filter(pk=message.payload["user_id"], is_active=True).first()
    if user is None:  # erased meanwhile
        return "nobody"
    subject, text = message.payload["subject"], message.payload["text"]
    body = f"{text}\n\n{settings.SOUK_API_URL}\n"
    return str(send_mail(f"[Souk] {subject}", body, settings.DEFAULT_FROM_EMAIL, [user.email]))


def recipients(provider_id: UUID, settings_id: UUID) -> set[UUID]:
    """Who is told: owners, and those who chose before."""
    owners = Membership.objects.filter(organisation_id=provider_id, role=Role.OWNER).order_by("created_at")
    choices = Event.objects.filter(subject_kind=EVENT_KIND, subject_id=settings_id).order_by("-id")
    actors = choices.values_list("actor", flat=True)[:CHOICES_LOOKED_AT_MAX]
    return set(owners.values_list("user_id", flat=True)[:OWNERS_MAX]) | {
        user_id for actor in actors if (user_id := _user_of(actor)) is not None
    }


def _mail(provider_id: UUID, settings_id: UUID, what: str, subject: str, text: str) -> None:
    for user_id in sorted(recipients(provider_id, settings_id)):
        payload = {"user_id": str(user_id), "subject": subject, "text": text}
        outbox.enqueue(MAIL_KIND, f"payout_mail:{what}:{user_id}", payload)


def _user_of(actor: str) -> UUID | None:
    """The user in an event's actor, "organisation:user"."""
    try:
        return UUID(actor.rsplit(":", 1)[-1])
    except ValueError:
        return None
