"""How Stripe is asked, whatever for: nothing twice, and lists whole. Knows nothing of Stripe's library.

Nothing is retried in here: whoever calls does so from the outbox, which tries again with a growing pause. Each call
that creates something takes a `Key`, which makes its repetition harmless:

    1. asked before, or long ago?   look it up; what is found is the answer
    2. create, under the key
    3. the stored answer is of no use (a 500, or a balance that was short then)?   look it up, else take the next key
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from billing.rails.stripe.records import Json, StripeRefused, StripeTooLong, StripeUnknown
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage

KEY_HOURS_MAX: Final = 23  # how long a key is reused; Stripe forgets keys after 24 hours
KEYS_MAX: Final = 24  # tries of one request with a new key each, where Stripe's stored answer is of no use
PASSING: Final = frozenset({"balance_insufficient"})  # refusals that time may heal, and that Stripe repeats from memory
PAGES_MAX: Final = 100  # pages read of one list: 10,000 rows
PAGE_SIZE: Final = 100
LISTS_MAX: Final = 100  # requests for parts of a list that is too long to be read at once

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """What makes a call happen once: `text` for Stripe, and whether to look before asking."""

    text: str
    is_repeat: bool = False

    @classmethod
    def of(cls, message: OutboxMessage) -> Key:
        """The outbox message's own; after the first attempt, or near the end of Stripe's memory, one looks first."""
        return cls.at(message.pk, created_at=message.created_at, attempts=message.attempts)

    @classmethod
    def at(cls, message_id: UUID, *, created_at: datetime, attempts: int) -> Key:
        """The same, of a message's fields."""
        is_old = created_at < clock.now() - timedelta(hours=KEY_HOURS_MAX)
        return cls(str(message_id), is_repeat=attempts > 1 or is_old)


class StripeCalls(ABC):
    """What every subject's calls stand on."""

    @abstractmethod
    def _call(self, method: str, path: str, params: Json, *, account: str = "", key: str = "") -> Any:
        """Make one call; raises one of the errors in records.py."""

    def _make(self, create: Callable[[str], T], key: Key, *, find: Callable[[], T | None] | None = None) -> T:
        """Once per key, whatever happened before; see the top of this file."""
        found = find() if find and key.is_repeat else None
        for number in range(1, KEYS_MAX + 1):
            if found is not None:
                return found
            try:
                return create(key.text if number == 1 else f"{key.text}-{number}")
            except StripeUnknown as error:
                if not error.is_replay:
                    raise
            except StripeRefused as error:
                if not (error.is_replay and error.code in PASSING):
                    raise
            found = find() if find else None
        if found is not None:
            return found
        raise StripeUnknown(f"Stripe keeps a useless answer to each of {KEYS_MAX} tries.")

    def _first(self, path: str, params: Json, name: str, value: str, *, account: str = "") -> Mapping[str, Any] | None:
        listed = self._list(path, params, account=account)
        return next((one for one in listed if (one.get("metadata") or {}).get(name) == value), None)

    def _list(self, path: str, params: Json, *, account: str = "") -> Iterator[Mapping[str, Any]]:
        """Newest first, all pages; raises StripeTooLong rather than answer with a part."""
        after: dict[str, str] = {}
        newest = 0
        for _ in range(PAGES_MAX):
            page = self._get(path, {**params, "limit": PAGE_SIZE, **after}, account=account)
            rows: Sequence[Mapping[str, Any]] = page["data"]
            yield from rows
            if not page["has_more"] or not rows:
                return
            newest = newest or int(rows[0].get("created") or 0)
            after = {"starting_after": rows[-1]["id"]}
        raise StripeTooLong(f"{path} has more than {PAGES_MAX} pages.", newest=newest)

    def _list_since(self, path: str, since: datetime) -> Iterator[list[Mapping[str, Any]]]:
        """All since then, oldest first, in parts of at most PAGES_MAX pages: who keeps how far it came goes on there.

        Stripe lists the newest first, so what is too long is cut by its time, into halves until one fits. Raises
        StripeTooLong after LISTS_MAX tries, or where one second alone is too long.
        """
        start, seconds, last = int(since.timestamp()), 0, 0  # seconds: of the part; 0 is all that there is
        for _ in range(LISTS_MAX):
            created = {"gte": start, "lt": start + seconds} if seconds else {"gte": start}
            try:
                part = list(self._list(path, {"created": created}))
            except StripeTooLong as error:
                last = last if seconds else error.newest
                log.warning("A list of Stripe's is too long to be read at once. path=%s since=%s", path, start)
                seconds = ((seconds or last + 1 - start) + 1) // 2 if seconds != 1 else 0
                if seconds <= 0:
                    raise
                continue
            yield part[::-1]
            if not seconds:
                return
            start, seconds = start + seconds, 2 * seconds
            if start + seconds > last:
                seconds = 0
        raise StripeTooLong(
            f"{path} is longer than {LISTS_MAX} times {PAGES_MAX} pages: the rest is for the next time."
        )

    def _get(self, path: str, params: Json | None = None, *, account: str = "") -> Any:
        return self._call("get", path, params or {}, account=account)

    def _post(self, path: str, params: Json, *, key: str = "", account: str = "") -> Any:
        return self._call("post", path, params, account=account, key=key)
