"""Connections that have not proven who they are: few, short, and no obstacle to an agent that has just come.

Where there are too many, the oldest of the address that has most of them is closed for the newest. An agent proves
itself within a second; who only keeps connections open loses them first, wherever they come from.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from marketplace.foundation.addresses.forwarded import counted_address


class Handshake:
    """One that is under way."""

    def __init__(self) -> None:
        self._limit: asyncio.Timeout | None = None
        self._is_dropped = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """What is within ends with a TimeoutError when it is dropped."""
        if self._is_dropped:
            raise TimeoutError
        async with asyncio.timeout(None) as self._limit:
            yield

    def drop(self) -> None:
        """End it now, in favour of a newer one."""
        self._is_dropped = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())


class Handshakes:
    """All that are under way at one gateway."""

    def __init__(self, most: int, of_an_address: int) -> None:
        self._most, self._of_an_address = most, of_an_address
        self._by_address: defaultdict[str, dict[Handshake, None]] = defaultdict(dict)  # in the order in which they came
        self.count = 0

    @contextmanager
    def begin(self, address: str) -> Iterator[Handshake]:
        """One more; where there are too many of this address, or in all, an older one is dropped."""
        counted, handshake = counted_address(address), Handshake()
        mine = self._by_address[counted]
        if len(mine) >= self._of_an_address:
            self._drop_oldest(counted)
        elif self.count >= self._most:
            self._drop_oldest(max(self._by_address, key=lambda one: len(self._by_address[one])))
        self._by_address[counted][handshake] = None
        self.count += 1
        try:
            yield handshake
        finally:
            self._remove(counted, handshake)

    def _drop_oldest(self, counted: str) -> None:
        handshake = next(iter(self._by_address[counted]))
        self._remove(counted, handshake)
        handshake.drop()

    def _remove(self, counted: str, handshake: Handshake) -> None:
        mine = self._by_address.get(counted, {})
        if handshake in mine:
            del mine[handshake]
            self.count -= 1
            if not mine:
                del self._by_address[counted]
