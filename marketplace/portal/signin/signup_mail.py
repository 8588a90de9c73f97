"""The mail to an address that somebody signed up with: a link that makes the account, or word that there is one.

Which of the two is looked up when the mail is sent, so that only who reads the mail learns it.
"""

from __future__ import annotations

from django.conf import settings
from django.core.mail import send_mail
from django.urls import reverse

from billing.dispatch import handles
from marketplace.accounts import signup
from marketplace.foundation.models import OutboxMessage

NOT_YOU = "If it was not you, there is nothing to do.\n"


@handles(signup.SIGNUP_KIND)
def send(message: OutboxMessage) -> str:
    """Send what is next to the address, whoever asked."""
    wanted = signup.read_request(message.payload)
    link_text = signup.pend(wanted)
    if link_text is None:
        forgotten = settings.SOUK_API_URL + reverse("password-forgotten")
        subject, text = (
            "[Souk] You have an account",
            (
                "Somebody, probably you, signed up with your address. It has an account already: sign in with its"
                f" password, or set a new one here:\n\n{forgotten}\n\n{NOT_YOU}"
            ),
        )
    else:
        link = settings.SOUK_API_URL + reverse("signup-confirm", args=[link_text])
        subject, text = (
            "[Souk] Confirm your address",
            (
                "Somebody, probably you, signed up with your address. Open this link to make the account, within"
                f" {signup.LINK_HOURS} hours:\n\n{link}\n\n{NOT_YOU}"
            ),
        )
    return str(send_mail(subject, text, settings.DEFAULT_FROM_EMAIL, [wanted["email"]]))
