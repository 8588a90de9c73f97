"""Wait for a transaction of ours, following its chain meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from billing.chain.errors import ChainError
from billing.chain.transactions import planning
from billing.chain_following.chains import follow_chain
from billing.models import ChainTransaction
from billing.states.chain import TransactionState

WAIT_SECONDS_MAX: Final = 300
POLL_SECONDS: Final = 1.0
ENDED: Final = frozenset(
    {TransactionState.FINAL, TransactionState.REVERTED, TransactionState.REPLACED, TransactionState.REFUSED}
)


def wait(one: ChainTransaction, *, seconds: float = WAIT_SECONDS_MAX, on_wait: Callable[[], None] | None = None) -> str:
    """Send, and return the state once it is mined or has ended, or when the time is over; it is still followed then."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            follow_chain(one.chain_id)
        except ChainError:
            if time.monotonic() > deadline:
                raise
        one.refresh_from_db()
        standing = planning.outcome_of(one)
        if standing.state in ENDED or standing.state == TransactionState.MINED or time.monotonic() > deadline:
            return standing.state
        if on_wait is not None:
            on_wait()
        time.sleep(POLL_SECONDS)
