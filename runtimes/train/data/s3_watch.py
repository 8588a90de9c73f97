"""Requests that run in threads, and one who watches them: no server of a stranger's holds a node for long.

A request that is sent again and again, headers or bytes that come one by one, and a job that is to stop look the same
to the thread that waits for them. So every end is decided here, by a look at most a second apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from runtimes.train.errors import Stopped, TrainError

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 300.0  # for one request, or for PATIENCE_MIN_BYTES of a fetch
PATIENCE_MIN_BYTES: Final = 1 << 20  # of all parts together
FETCH_SECONDS_MAX: Final = 20 * 3600.0  # of lists and fetch together; below the day that an attempt may prepare


class Watch:
    """Runs requests and waits for them. One thread uses it at a time."""

    def __init__(self, stop: threading.Event, *, give_up: Callable[[str], TrainError]) -> None:
        """`stop`: set when the job is to end. `give_up` makes the error of a wait that was no use, of its reason."""
        self._stop, self._give_up = stop, give_up
        self._spent = 0.0

    def run(
        self,
        works: Sequence[Callable[[threading.Event], T]],
        *,
        at_once: int = 1,
        come: Callable[[], int] = lambda: 0,
        wanted: int = 0,
        late: Callable[[], str],
    ) -> list[T]:
        """The result of each work, which is given an event that says when to end; raises what the first one raised.

        `come` counts the bytes so far, of `wanted`; without any, PATIENCE_SECONDS are for all. `late` says in words
        what was waited for in vain.

        Raises Stopped once the job is to stop, `give_up` after PATIENCE_SECONDS with too little or FETCH_SECONDS_MAX.
        """
        ended, began = threading.Event(), time.monotonic()
        pool = ThreadPoolExecutor(at_once)
        try:
            over = _Over(len(works))
            running = [pool.submit(work, ended) for work in works]
            for each in running:
                each.add_done_callback(over.count)
            self._watch(over, began, come, wanted, late)
            if over.failed is not None:
                over.failed.result()
            return [each.result() for each in running]
        finally:
            ended.set()  # what still waits for an answer ends with it
            self._spent += time.monotonic() - began
            pool.shutdown(wait=False, cancel_futures=True)

    def _watch(
        self,
        over: _Over,
        began: float,
        come: Callable[[], int],
        wanted: int,
        late: Callable[[], str],
    ) -> None:
        until = began + FETCH_SECONDS_MAX - self._spent
        since, had = began, come()
        while not over.wait(min(LOOK_SECONDS, PATIENCE_SECONDS)):
            now = time.monotonic()
            if self._stop.is_set():
                raise Stopped("stopped while the data on S3 were looked at or fetched")
            if wanted and come() - had >= min(PATIENCE_MIN_BYTES, wanted - had):
                since, had = now, come()
            if now > until:
                raise self._give_up(
                    f"the data on S3 could not be listed and fetched in {FETCH_SECONDS_MAX / 3600:.0f} hours"
                )
            if now - since > PATIENCE_SECONDS:
                raise self._give_up(late())


class _Over:
    """Set once all have ended, or one has failed."""

    def __init__(self, left: int) -> None:
        self.failed: Future[Any] | None = None
        self._left, self._lock, self._event = left, threading.Lock(), threading.Event()
        if not left:
            self._event.set()

    def count(self, each: Future[Any]) -> None:
        if each.cancelled():
            return
        with self._lock:
            self._left -= 1
            if self.failed is None and each.exception() is not None:
                self.failed = each
            if self.failed is not None or not self._left:
                self._event.set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)
