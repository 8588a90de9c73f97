"""How long to pause after failures in a row: one formula for the agent, the server and the gateway.

Exponential with a cap, and with jitter so that what failed together is not tried again together ("full jitter": M.
Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

Jitter = tuple[float, float]  # the pause is multiplied by a factor drawn evenly between these two

NO_JITTER: Final[Jitter] = (1.0, 1.0)  # for a pause that is computed again from the same facts
QUARTER_JITTER: Final[Jitter] = (0.75, 1.25)
FULL_JITTER: Final[Jitter] = (0.0, 1.0)
DOUBLINGS_MAX: Final = 60  # more would only overflow: every cap is reached before


def backoff_seconds(
    failures: int,
    *,
    first: float,
    most: float,
    jitter: Jitter = NO_JITTER,
    draw: Callable[[float, float], float] = random.uniform,
) -> float:
    """The pause in seconds after so many failures in a row: min(first * 2 ** (failures - 1), most), times the jitter.

    After one failure, or none, it is `first`. With jitter it may be above `most` by the jitter's upper factor.
    """
    doublings = min(max(failures - 1, 0), DOUBLINGS_MAX)
    return min(first * 2.0**doublings, most) * (draw(*jitter) if jitter != NO_JITTER else 1.0)
