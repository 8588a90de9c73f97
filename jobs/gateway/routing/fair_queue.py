"""Requests that wait for a replica, served fairly by key: bounded in number, each with a deadline.

Keys take turns, and within a key requests are served in the order in which they came: a key with a thousand requests
delays another key's first request by one request. A free slot goes to the next request that can use it (a replica may
lack what one request needs), so that no later request of that kind is served earlier.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar
from uuid import UUID

QUEUED_MAX = 1024  # of an endpoint
KEY_QUEUED_MAX = 256  # of one key, so that other keys' requests can be queued
TURNS_MAX = 8  # keys whose first request is tried when a slot is free
RETRY_AFTER_MAX = 120

Slot = TypeVar("Slot")


class QueueFull(Exception):
    """The queue has as many requests as it may have."""


class Waiter(Generic[Slot]):
    """One request; `take` gives a slot if there is one for it now."""

    __slots__ = ("future", "since", "take")

    def __init__(self, take: Callable[[], Slot | None], now: float) -> None:
        self.take, self.since = take, now
        self.future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()


class FairQueue(Generic[Slot]):
    """The waiting requests of one endpoint."""

    def __init__(self) -> None:
        self._keys: OrderedDict[UUID, deque[Waiter[Slot]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(
        self, key_id: UUID, take: Callable[[], Slot | None], now: float, *, is_first: bool = False
    ) -> Waiter[Slot]:
        """Wait: the waiter's future gets the slot. Raises QueueFull.

        `is_first`: a request that had its turn and lost its replica goes before all others.
        """
        own = self._keys.get(key_id)
        is_full = self._count >= QUEUED_MAX or (own is not None and len(own) >= KEY_QUEUED_MAX)
        if is_full and not is_first:
            raise QueueFull
        if own is None:
            own = self._keys[key_id] = deque()
        waiter = Waiter(take, now)
        if is_first:
            own.appendleft(waiter)
            self._keys.move_to_end(key_id, last=False)
        else:
            own.append(waiter)
        self._count += 1
        return waiter

    def leave(self, key_id: UUID, waiter: Waiter[Slot]) -> None:
        """It waits no more; harmless for one that got a slot."""
        own = self._keys.get(key_id)
        if own is None or waiter not in own:
            return
        own.remove(waiter)
        self._count -= 1
        if not own:
            del self._keys[key_id]

    def pump(self) -> None:
        """Hand free slots to those whose turn it is, until none fits."""
        while self._count and self._hand_one():
            pass

    def seconds_waited(self, now: float) -> float:
        """How long the one that waits longest has waited."""
        return max((now - own[0].since for own in self._keys.values()), default=0.0)

    def _hand_one(self) -> bool:
        for key_id in list(self._keys)[:TURNS_MAX]:
            own = self._keys[key_id]
            waiter = own[0]
            slot = None if waiter.future.done() else waiter.take()
            if slot is None and not waiter.future.done():
                continue
            own.popleft()
            self._count -= 1
            if not own:
                del self._keys[key_id]
            elif slot is not None:
                self._keys.move_to_end(key_id)
            if slot is not None:
                waiter.future.set_result(slot)
            return True
        return False


def retry_after(queued: int, capacity: int, seconds: float) -> int:
    """Seconds until a slot may be free: by the requests that wait now and the measured speed."""
    return max(1, min(RETRY_AFTER_MAX, math.ceil((queued + 1) * seconds / max(1, capacity))))
