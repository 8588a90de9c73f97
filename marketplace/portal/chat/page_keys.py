"""The key by which the web process calls the gateway for one user; no browser and no database ever holds its text."""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from jobs.endpoints.keys import SESSION_SECONDS, issue_session
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock

KEYS_MAX: Final = 1_000  # in one process
REST_SECONDS_MIN: Final = 1_000  # of a key's life, so that it outlives the answer that it is used for

_lock = threading.Lock()
_keys: OrderedDict[tuple[UUID, UUID], tuple[str, datetime]] = OrderedDict()


def key_for(user: User, organisation: Organisation) -> str:
    """A key that is valid long enough for one more answer. Raises TooManyEndpointKeys.

    One for many answers: each key that a gateway has sets some of the organisation's balance aside.
    """
    place = (user.pk, organisation.pk)
    soonest = clock.now() + timedelta(seconds=REST_SECONDS_MIN)
    with _lock:
        text, until = _keys.get(place, ("", soonest))
        if text and until > soonest:
            return text
    row, text = issue_session(organisation=organisation, user=user, seconds=SESSION_SECONDS)
    assert row.expires_at is not None  # noqa: S101  the database holds session keys to it
    with _lock:
        _keys[place] = text, row.expires_at
        _keys.move_to_end(place)
        while len(_keys) > KEYS_MAX:
            _keys.popitem(last=False)
    return text


def forget(user: User, organisation: Organisation) -> None:
    """The gateway refused it: the next answer gets a new one."""
    with _lock:
        _keys.pop((user.pk, organisation.pk), None)
