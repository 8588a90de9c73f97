"""The mail with the link that sets a new password: asked for by anybody, sent to who has an account.

Whether the address has one is looked up when the mail is sent, by a worker, so that neither the page's answer nor the
time that it takes tells. The link is made then, too: the outbox never holds it, and holds the address encrypted.
"""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.mail import send_mail
from django.urls import reverse

from billing.dispatch import handles
from marketplace.accounts import passwords, signin_limits
from marketplace.foundation import outbox, signing
from marketplace.foundation.ids import new_id
from marketplace.foundation.models import OutboxMessage

RESET_KIND: Final = "portal.password_reset"
SECONDS_A_MINUTE: Final = 60


def request_reset(email: str, address: str) -> None:
    """Write the mail down, if not too many were asked for; raises SigninLocked for an address of too many requests."""
    if signin_limits.take_mail(email, address):
        outbox.enqueue(RESET_KIND, f"password-reset:{new_id()}", {"email_sealed": signing.encrypt_secret(email)})


@handles(RESET_KIND)
def send(message: OutboxMessage) -> str:
    """Send the link to who has an account; it holds for PASSWORD_RESET_TIMEOUT from now."""
    found = passwords.link_token(signing.decrypt_secret(message.payload["email_sealed"]))
    if found is None:
        return "nobody"
    user, token = found
    link = settings.SOUK_API_URL + reverse("password-reset", args=[str(user.pk), token])
    text = (
        f"Somebody, probably you, asked for a new password for your account. Set it within"
        f" {settings.PASSWORD_RESET_TIMEOUT // SECONDS_A_MINUTE} minutes here:\n\n{link}\n\n"
        "If it was not you, there is nothing to do: without this mail nobody can use the link.\n"
    )
    return str(send_mail("[Souk] Set a new password", text, settings.DEFAULT_FROM_EMAIL, [user.email]))
