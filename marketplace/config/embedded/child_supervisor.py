"""Keeps a set of children running until it is stopped, then stops them in the reverse order of their start."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from marketplace.config.embedded import children, orphans
from marketplace.config.embedded.children import Child, Recipe
from marketplace.config.embedded.errors import ChildFailed

WATCH_SECONDS = 0.2
RESTART_SECONDS_FIRST = 0.5
RESTART_SECONDS_MAX = 30.0
# A child that lived this long was well; its next death starts the waiting over.
WELL_AFTER_SECONDS = 60.0

Say = Callable[[str], None]


class StopRequested(BaseException):
    """Ctrl-C or SIGTERM; not an Exception, so that nothing swallows it."""


@dataclass
class _Post:
    """One child's state: how often it ended by itself in a row, and when it is started again."""

    child: Child
    deaths: int = 0
    again_at: float | None = None


class ChildSupervisor:
    """Start children through it, then `watch`. Use it from the main thread, which outlives all of them."""

    def __init__(self, *, children_file: Path, say: Say) -> None:
        self._file = children_file
        self._say = say
        self._posts: dict[str, _Post] = {}

    def add(self, child: Child) -> Child:
        """From now on this child is watched, and stopped at the end."""
        self._posts[child.recipe.name] = _Post(child)
        self._remember()
        return child

    def start(self, recipe: Recipe) -> Child:
        """Start and add."""
        return self.add(children.start(recipe))

    def pids(self) -> dict[str, int]:
        """Name -> process id of everything that runs."""
        return {name: post.child.pid for name, post in self._posts.items() if post.child.is_alive()}

    def watch(self) -> None:
        """Replace every child that ends, forever; only StopRequested ends this."""
        while True:
            for name, post in self._posts.items():
                self._look_after(name, post)
            time.sleep(WATCH_SECONDS)

    def stop(self) -> None:
        """Every child has ended when this returns; last started, first stopped; every wait has a limit."""
        posts = [post for post in reversed(self._posts.values()) if post.again_at is None]
        servers = [post for post in posts if post.child.recipe.name in {"postgres", "redis"}]
        # Our own processes stop side by side; PostgreSQL and Redis only when no process needs them any more.
        programs = [post for post in posts if post not in servers]
        for post in programs:
            post.child.ask_to_stop()
        for post in programs:
            post.child.wait_or_kill()
        for post in servers:
            post.child.stop()
        for post in posts:
            post.child.kill()  # what the leader may have left in its group
        self._file.unlink(missing_ok=True)

    def _look_after(self, name: str, post: _Post) -> None:
        if post.again_at is None:
            if not post.child.is_alive():
                self._announce_death(name, post)
        elif time.monotonic() >= post.again_at:
            post.again_at = None
            try:
                post.child = children.start(post.child.recipe)
            except ChildFailed as error:
                self._say(error.message)
                post.again_at = time.monotonic() + RESTART_SECONDS_MAX
            self._remember()

    def _announce_death(self, name: str, post: _Post) -> None:
        post.child.kill()  # the rest of its group: gunicorn's workers would go on serving
        lived = time.monotonic() - post.child.started_at
        post.deaths = 1 if lived > WELL_AFTER_SECONDS else post.deaths + 1
        wait = min(RESTART_SECONDS_MAX, RESTART_SECONDS_FIRST * 2.0 ** (post.deaths - 1))
        post.again_at = time.monotonic() + wait
        self._say(
            f"{name} ended ({_in_words(post.child.process.returncode)}); "
            f"starting it again in {wait:.1f} s; see {post.child.recipe.log}"
        )
        if post.deaths > 1 and (tail := post.child.last_lines()):
            self._say(tail)

    def _remember(self) -> None:
        orphans.remember(self._file, [post.child for post in self._posts.values() if post.child.is_alive()])


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Callable[[], None]]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP raises StopRequested; call what it yields to ignore further ones."""
    is_stopping = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            raise StopRequested

    def ignore_further() -> None:
        nonlocal is_stopping
        is_stopping = True

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield ignore_further
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_words(status: int | None) -> str:
    if status is None:
        return "no status"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
