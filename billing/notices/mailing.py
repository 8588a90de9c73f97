"""People are notified by mail, through the outbox: once for each `what` and person, also after a crash.

People are named by id until a mail is sent, so that the outbox keeps no address of anybody who was erased.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from django.conf import settings
from django.core.mail import send_mail

from billing.dispatch import handles
from marketplace.accounts.models import Membership, Role, User
from marketplace.foundation import outbox
from marketplace.foundation.models import OutboxMessage

MAIL_KIND: Final = "billing.mail"
OWNERS_MAX: Final = 50


def owners_of(organisation_id: UUID) -> set[UUID]:
    """The users who own it, the first OWNERS_MAX of them."""
    owners = Membership.objects.filter(organisation_id=organisation_id, role=Role.OWNER).order_by("created_at")
    return set(owners.values_list("user_id", flat=True)[:OWNERS_MAX])


def notify(user_ids: Iterable[UUID], what: str, *, subject: str, text: str) -> None:
    """Write a mail to each down, in the transaction around it; `what` again sends nothing again."""
    for user_id in sorted(user_ids):
        payload = {"user_id": str(user_id), "subject": subject, "text": text}
        outbox.enqueue(MAIL_KIND, f"mail:{what}:{user_id}", payload)


@handles(MAIL_KIND)
def send(message: OutboxMessage) -> str:
    """Send one person one mail. After a crash it may go out twice: better than not at all."""
    user = User.objects.filter(pk=message.payload["user_id"], is_active=True).first()
    if user is None:  # erased meanwhile
        return "nobody"
    subject, text = message.payload["subject"], message.payload["text"]
    body = f"{text}\n\n{settings.SOUK_API_URL}\n"
    return str(send_mail(f"[Souk] {subject}", body, settings.DEFAULT_FROM_EMAIL, [user.email]))
