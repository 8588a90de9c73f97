"""Makes the calls that the outbox holds: each kind has one handler, and each call is made outside of any transaction.

    enqueue (with the decision, in its transaction) -> dispatch_due (a Celery tick) -> handler -> done | fail

A handler takes the message and returns what the other side calls the result. It raises Hopeless where another try can
never help; any other exception is tried again with a growing pause. It may run twice: `message.id` is the
idempotency key. A module that has to react to a call that is given up for good
registers with `on_given_up`: notices/alerts.py does.
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
Listener = Callable[[OutboxMessage], object]

ROUNDS_MAX: Final = 20  # batches in one run; the next tick takes the next

log = logging.getLogger(__name__)
_handlers: dict[str, Handler] = {}
_on_given_up: list[Listener] = []


class Hopeless(Exception):
    """This call can never succeed as it is; its text has the reason."""


def handles(kind: str) -> Callable[[Handler], Handler]:
    """Name the function that makes calls of this kind."""

    def register(handler: Handler) -> Handler:
        if _handlers.setdefault(kind, handler) is not handler:
            raise ValueError(f"two handlers for {kind}")
        return handler

    return register


def on_given_up(listener: Listener) -> Listener:
    """Have this function called with every message that is given up for good, after that is written down."""
    if listener not in _on_given_up:
        _on_given_up.append(listener)
    return listener


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
        return False  # those claimed before it were slow, and another process makes this one
    try:
        external_id = _handlers[message.kind](message)
    except Exception as error:
        log.warning("A call to the outside failed. kind=%s key=%s error=%s", message.kind, message.business_key, error)
        finish = partial(outbox.fail, message, str(error), retry=not isinstance(error, Hopeless))
    else:
        finish = partial(outbox.done, message, external_id=external_id)
    try:
        finished = finish()
    except StateConflict as conflict:  # it took longer than its lease, and the process that took it over finished first
        log.warning("A call was finished by somebody else. %s", conflict)
        return False
    if finished.state == OutboxMessage.State.FAILED:
        for listener in _on_given_up:
            listener(finished)
    return finished.state == OutboxMessage.State.DONE
