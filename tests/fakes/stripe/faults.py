"""What may go wrong between a caller and Stripe: by script for one call, or by chance from a seed for all of them."""

from __future__ import annotations

import fnmatch
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """Where `effect` is named: before it, nothing has happened; after it, it has, and the caller does not know."""

    TIMEOUT_BEFORE = "timeout_before_effect"  # nothing is answered until the caller gives up
    TIMEOUT_AFTER = "timeout_after_effect"
    ERROR_BEFORE = "500_before_effect"  # stored: the same key replays it
    ERROR_AFTER = "500_after_effect"  # stored: the same key replays it, although it was done
    UNAVAILABLE = "503"  # from the edge: nothing happened, nothing is stored
    RATE_LIMITED = "429"
    KEY_IN_USE = "409"  # another call with this key is under way
    RESET_BEFORE = "reset_before_effect"
    RESET_AFTER = "reset_after_effect"
    SLOW = "slow"  # the answer comes, late

    @property
    def is_after(self) -> bool:
        return self in {Fault.TIMEOUT_AFTER, Fault.ERROR_AFTER, Fault.RESET_AFTER}


UNCERTAIN: Final = (Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER, Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.RESET_AFTER)


@dataclass
class _Script:
    fault: Fault
    path: str
    method: str
    times: int


@dataclass
class Faults:
    """Chooses the fault of each call; scripts come first, then chance."""

    seed: int
    probability: float = 0.0
    kinds: tuple[Fault, ...] = ()
    chosen: list[tuple[str, str, Fault]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(f"faults {self.seed}")
        self._scripts: list[_Script] = []

    def script(self, fault: Fault | str, path: str, *, times: int = 1, method: str = "POST") -> None:
        """The next `times` calls of this method to paths like this one (* stands for anything) go wrong so."""
        self._scripts.append(_Script(Fault(fault), path, method, times))

    def at_random(self, probability: float, kinds: Collection[Fault | str] = tuple(Fault)) -> None:
        """From now on each POST goes wrong with this probability, in one of these ways; 0 ends it."""
        self.probability, self.kinds = probability, tuple(Fault(kind) for kind in kinds)

    def clear(self) -> None:
        self._scripts.clear()
        self.probability = 0.0

    def choose(self, method: str, path: str) -> Fault | None:
        for script in self._scripts:
            if script.times and script.method in {method, "*"} and fnmatch.fnmatchcase(path, script.path):
                script.times -= 1
                self.chosen.append((method, path, script.fault))
                return script.fault
        if method == "POST" and self.probability and self._dice.random() < self.probability:
            fault = self._dice.choice(self.kinds)
            self.chosen.append((method, path, fault))
            return fault
        return None
