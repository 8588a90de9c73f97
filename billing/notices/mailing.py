"""Sends the mail that `marketplace/accounts/mailing.py` writes down, and says who owns an organisation."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.conf import settings
from django.core.mail import send_mail

from billing.dispatch import handles
from marketplace.accounts.mailing import MAIL_KIND, notify
from marketplace.accounts.models import Membership, Role, User
from marketplace.foundation.models import OutboxMessage

OWNERS_MAX: Final = 50

__all__ = ["MAIL_KIND", "notify", "owners_of", "send"]


def owners_of(organisation_id: UUID) -> set[UUID]:
    """The users who own it, the first OWNERS_MAX of them."""
    owners = Membership.objects.filter(organisation_id=organisation_id, role=Role.OWNER).order_by("created_at")
    return set(owners.values_list("user_id", flat=True)[:OWNERS_MAX])


@handles(MAIL_KIND)
def send(message: OutboxMessage) -> str:
    """Send one person one mail. After a crash it may go out twice: better than not at all."""
    user = User.objects.filter(pk=message.payload["user_id"], is_active=True).first()
    if user is None:  # erased meanwhile
        return "nobody"
    subject, text = message.payload["subject"], message.payload["text"]
    body = f"{text}\n\n{settings.SOUK_API_URL}\n"
    return str(send_mail(f"[Souk] {subject}", body, settings.DEFAULT_FROM_EMAIL, [user.email]))
