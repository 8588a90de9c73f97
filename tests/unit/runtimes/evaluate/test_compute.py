"""What fails without a name of ours ends the evaluation at once: nobody waits for what is still asked."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import EventWriter
from runtimes.evaluate.answers import ANSWERS_FILE, Answers
from runtimes.evaluate.compute import Progress, compute_missing
from runtimes.evaluate.request import GENERATE, Answer, Request
from runtimes.train.container import read_container
from runtimes.train.errors import Stopped

WAITED_SECONDS_MAX = 30.0


class Asked:
    """Two at once: the one fails when the other has begun to wait for its answer."""

    digest = "theirs"
    concurrency = 2

    def __init__(self, stop: threading.Event) -> None:
        self.stop, self.waits, self.was_left = stop, threading.Event(), threading.Event()

    def answer(self, request: Request) -> Answer:
        """Of "stalls" none, until it is left."""
        if request.arguments[0] == "fails":
            assert self.waits.wait(WAITED_SECONDS_MAX)
            raise KeyError("unforeseen")
        self.waits.set()
        if self.stop.wait(WAITED_SECONDS_MAX):
            self.was_left.set()
            raise Stopped("left")
        return "late"


def test_an_unforeseen_failure_leaves_what_is_still_asked(tmp_path: Path) -> None:
    stop = threading.Event()
    asked: Any = Asked(stop)
    requests = [Request(GENERATE, (what, (), 1)) for what in ("stalls", "fails")]
    answers = Answers(tmp_path / ANSWERS_FILE, {each.digest("theirs"): GENERATE for each in requests})
    progress = Progress(read_container({}, config=None, output=str(tmp_path)), EventWriter(""), stop, 1)
    with pytest.raises(KeyError):
        compute_missing(requests, asked, answers, progress, batch_size=2)
    assert asked.was_left.wait(WAITED_SECONDS_MAX)
    assert len(answers) == 0
    answers.close()
