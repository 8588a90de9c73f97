"""Calls to the outside world: written in the transaction that decided them, made after it, at least once.

    enqueue -> claim (leased to one worker) -> renew -> done | fail (again later, at last for good)

The receiver of a call must take `business_key` as its idempotency key: a worker that dies between the call and `done`
makes it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.foundation.errors import OutboxConflict, StateConflict
from marketplace.foundation.ids import new_id
from marketplace.foundation.models import OutboxMessage
from provider_agent.protocol.backoff import QUARTER_JITTER, backoff_seconds

LEASE_SECONDS: Final = 60
CLAIM_MAX: Final = 50
ATTEMPTS_MAX: Final = 12
BACKOFF_SECONDS_FIRST: Final = 2
BACKOFF_SECONDS_MAX: Final = 3600
ERROR_CHARACTERS_MAX: Final = 2000

_State = OutboxMessage.State


def enqueue(kind: str, business_key: str, payload: Mapping[str, Any]) -> OutboxMessage:
    """Write one call down, once per business key; a repeat returns the first, a different one raises OutboxConflict."""
    fields = {"kind": kind, "payload": dict(payload)}
    message, is_new = OutboxMessage.objects.get_or_create(business_key=business_key, defaults=fields)
    if not is_new and (message.kind, message.payload) != (kind, dict(payload)):
        raise OutboxConflict(business_key=business_key)
    return message


def claim(kinds: Collection[str], *, limit: int = CLAIM_MAX, lease_seconds: int = LEASE_SECONDS) -> list[OutboxMessage]:
    """Lease the oldest calls that are due to this caller only; counts an attempt of each."""
    now = clock.now()
    is_free = Q(lease_until=None) | Q(lease_until__lte=now)
    due = OutboxMessage.objects.filter(is_free, kind__in=kinds, state=_State.WAITING, next_at__lte=now)
    owner = str(new_id())  # of this claim: a worker that returns after its lease ended is refused
    with transaction.atomic():
        messages = list(due.select_for_update(skip_locked=True).order_by("next_at")[: min(limit, CLAIM_MAX)])
        for message in messages:
            message.attempts += 1
            message.lease_owner = owner
            message.lease_until = now + timedelta(seconds=lease_seconds)
        OutboxMessage.objects.bulk_update(messages, ["attempts", "lease_owner", "lease_until"])
    return messages


def renew(message: OutboxMessage, *, lease_seconds: int = LEASE_SECONDS) -> bool:
    """Begin the lease anew right before the call is made; False if it ended and another worker has it.

    Calls are claimed many at a time: without this the last ones of slow ones would be made by two workers at once.
    """
    now = clock.now()
    mine = OutboxMessage.objects.filter(pk=message.pk, state=_State.WAITING, lease_owner=message.lease_owner)
    message.lease_until = now + timedelta(seconds=lease_seconds)
    return bool(message.lease_owner) and mine.update(lease_until=message.lease_until) == 1


def done(message: OutboxMessage, *, external_id: str = "") -> OutboxMessage:
    """The call was made and answered; `external_id` is what the other side calls it."""
    return _finish(message, state=_State.DONE, external_id=external_id, last_error="")


def fail(message: OutboxMessage, error: str, *, retry: bool = True) -> OutboxMessage:
    """The call did not go through: again after a pause that doubles, or (no `retry`, too many) never.

    The pause varies by a quarter, so that what failed together does not come back together.
    """
    is_last = not retry or message.attempts >= ATTEMPTS_MAX
    pause = backoff_seconds(
        message.attempts, first=BACKOFF_SECONDS_FIRST, most=BACKOFF_SECONDS_MAX, jitter=QUARTER_JITTER
    )
    return _finish(
        message,
        state=_State.FAILED if is_last else _State.WAITING,
        next_at=clock.now() + timedelta(seconds=pause),
        last_error=error[:ERROR_CHARACTERS_MAX],
    )


def _finish(message: OutboxMessage, **fields: Any) -> OutboxMessage:
    """Compare-and-set by the claim's owner: a worker whose lease went to another one changes nothing."""
    fields |= {"lease_until": None, "lease_owner": ""}
    mine = OutboxMessage.objects.filter(pk=message.pk, state=_State.WAITING, lease_owner=message.lease_owner)
    if not message.lease_owner or mine.update(**fields) != 1:
        raise StateConflict(kind="outbox message", id=str(message.pk), to=fields["state"], state="not yours any more")
    for name, value in fields.items():
        setattr(message, name, value)
    return message
