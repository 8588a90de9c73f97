"""What a sequence needs besides the database: one clock, one random source, and a chain that forks."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from unittest import mock

from eth._utils import headers
from web3.providers.base import JSONBaseProvider

from billing.chain.devchain.chain import DevChain, Refused
from billing.chain.devchain.rpc import answer
from marketplace.foundation import clock

BEGINNING: Final = int(datetime(2026, 3, 2, 12, tzinfo=UTC).timestamp())


class Clock:
    """The time of the sequence: it moves by a millisecond at each reading, and otherwise when a rule moves it."""

    def __init__(self) -> None:
        self.start = float(BEGINNING)
        self.reset()

    def reset(self) -> None:
        self._now = self.start

    def seconds(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def catch_up(self, seconds: float) -> None:
        """No block is of the future."""
        self._now = max(self._now, seconds)

    def now(self, zone: Any = UTC) -> datetime:
        self._now += 0.001
        return datetime.fromtimestamp(self._now, zone)

    @contextmanager
    def rules(self) -> Iterator[None]:
        """The server reads this clock."""
        ours = self

        class Datetime:
            now = staticmethod(ours.now)

        # py-evm estimates gas in a block of the present.
        with mock.patch.object(clock, "datetime", Datetime), mock.patch.object(headers, "eth_now", ours._second):
            yield

    def _second(self) -> int:
        return int(self._now)


class Dice:
    """Whatever is chosen at random, ids and keys too: of one seed, so that a sequence can be repeated exactly."""

    def __init__(self) -> None:
        self._random = random.Random(BEGINNING)

    def seed(self, number: int) -> None:
        self._random.seed(number)

    def urandom(self, size: int) -> bytes:
        return self._random.randbytes(size)

    @contextmanager
    def rules(self) -> Iterator[None]:
        """uuid4, secrets and wallets use this random source."""
        with mock.patch.object(os, "urandom", self.urandom), mock.patch.object(random, "_urandom", self.urandom):
            yield


@dataclass
class ForkingChain(DevChain):
    """A development chain whose newest blocks can be reverted, and whose time is the sequence's."""

    clock: Clock = field(default_factory=Clock)
    raws: list[bytes | None] = field(default_factory=list)  # of each block after the first

    def _now(self) -> int:
        at = max(int(self.clock.seconds()), int(self.blocks[-1].header["timestamp"]) + 1)
        self.clock.catch_up(at)
        return at

    def _mine(self, raw: bytes | None, at: int) -> None:
        super()._mine(raw, at)
        self.raws.append(raw)

    def rewind(self, number: int) -> None:
        """Forget every block after this one."""
        with self._lock:
            self._backend.revert_to_snapshot(bytes(self.blocks[number].header["hash"]))
            del self.blocks[number + 1 :], self.raws[number:]
            self._places = {tx: place for tx, place in self._places.items() if place[0] <= number}
            self._by_hash = {one: at for one, at in self._by_hash.items() if at <= number}
            self._queued.clear()

    def fork(self, depth: int, *, is_kept: bool) -> None:
        """Other blocks take the place of the newest; their transactions come again, or are forgotten by all nodes."""
        with self._lock:
            raws, height = [raw for raw in self.raws[-depth:] if raw], self.head
            self.rewind(height - depth)
            self.mine_empty()
            for raw in raws if is_kept else []:
                try:
                    self.send(raw)
                except Refused:  # what it stood on is gone
                    continue
            while self.head <= height:
                self.mine_empty()


class Direct(JSONBaseProvider):
    """The chain's RPC without a socket between: the same requests and answers, many times as fast."""

    def __init__(self, chain: DevChain) -> None:
        super().__init__()
        self._chain = chain

    def make_request(self, method: Any, params: Any) -> Any:
        return answer(self._chain, json.loads(self.encode_rpc_request(method, params)))

    def is_connected(self, show_traceback: bool = False) -> bool:
        return True
