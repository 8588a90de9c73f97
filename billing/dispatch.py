"""Makes the calls that the outbox holds: each kind has one handler, and each call is made outside of any transaction.

    enqueue (with the decision, in its transaction) -> dispatch_due (a Celery tick) -> handler -> done | fail

A handler takes the message and returns what the other side calls the result. It raises Hopeless where asking again can
never help, and anything else to be tried again with a growing pause. It may run twice: `message.id` goes along as the
idempotency key. Giving a call up for good raises an alert.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from marketplace.foundation import outbox
from marketplace.foundation.errors import StateConflict
from marketplace.foundation.models import OutboxMessage

Handler = Callable[[OutboxMessage], str]

ROUNDS_MAX: Final = 20  # batches in one run; the next tick takes the next

log = logging.getLogger(__name__)
_handlers: dict[str, Handler] = {}


class Hopeless(Exception):
    """This call can never succeed as it is; its text says why."""


def handles(kind: str) -> Callable[[Handler], Handler]:
    """Name the function that makes calls of this kind."""

    def register(handler: Handler) -> Handler:
        if _handlers.setdefault(kind, handler) is not handler:
            raise ValueError(f"two handlers for {kind}")
        return handler

    return register


def dispatch_due() -> int:
    """Make every call that is due; how many were made. Any number of workers may do this at once."""
    made = 0
    for _ in range(ROUNDS_MAX):
        messages = outbox.claim(_handlers.keys())
        if not messages:
            break
        for message in messages:
            made += _make(message)
    return made


def _make(message: OutboxMessage) -> bool:
    if not outbox.renew(message):
        return False  # those claimed before it were slow, and somebody else makes this one
    try:
        external_id = _handlers[message.kind](message)
    except Exception as error:
        log.warning("A call to the outside failed. kind=%s key=%s error=%s", message.kind, message.business_key, error)
        finish = partial(outbox.fail, message, str(error), retry=not isinstance(error, Hopeless))
    else:
        finish = partial(outbox.done, message, external_id=external_id)
    try:
        finished = finish()
    except StateConflict as conflict:  # it took longer than its lease, and whoever took it over finished first
        log.warning("A call was finished by somebody else. %s", conflict)
        return False
    if finished.state == OutboxMessage.State.FAILED:
        _tell_operators(finished)
    return finished.state == OutboxMessage.State.DONE


def _tell_operators(message: OutboxMessage) -> None:
    """One alert a kind of call, or the mail that cannot be sent would be told of by ever more mail."""
    from billing import alerts  # its own mail is one of the calls made here

    text = f"A call to the outside was given up for good: {message.business_key}. {message.last_error}"
    alerts.raise_once(f"outbox:{message.kind}", kind="call_given_up", subject=message.pk, message=text)
