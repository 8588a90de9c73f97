"""Mail to users is written down here, through the outbox: once for each `what` and person, also after a crash.

`billing/notices/mailing.py` sends it. People are named by id until a mail is sent, so that the outbox keeps no address
of anybody who was erased.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from marketplace.foundation import outbox

MAIL_KIND: Final = "billing.mail"


def notify(user_ids: Iterable[UUID], what: str, *, subject: str, text: str) -> None:
    """Write a mail to each down, in the transaction around it; `what` again sends nothing again."""
    for user_id in sorted(user_ids):
        payload = {"user_id": str(user_id), "subject": subject, "text": text}
        outbox.enqueue(MAIL_KIND, f"mail:{what}:{user_id}", payload)
