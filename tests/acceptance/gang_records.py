"""What counts of a training that lost nodes, read from the events of all of its attempts and generations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs.client.sdk import Souk
from jobs.wire import JobView

PAGES_MAX = 1000


@dataclass
class Training:
    """What was done after a checkpoint from which it went on later is undone, and done again."""

    losses: dict[int, float] = field(default_factory=dict)  # by step
    samples: dict[int, list[int]] = field(default_factory=dict)  # the ids of a step's sequences
    twice: list[int] = field(default_factory=list)  # steps that counted twice
    resumed: list[int] = field(default_factory=list)  # steps of the checkpoints that it went on from
    stepped_at: list[float] = field(default_factory=list)  # when each start had done its first step, seconds since 1970
    undone: int = 0  # steps

    def undo_after(self, step: int) -> None:
        """Forget what came after this step."""
        self.undone += sum(each > step for each in self.samples)
        self.losses = {each: loss for each, loss in self.losses.items() if each <= step}
        self.samples = {each: ids for each, ids in self.samples.items() if each <= step}


def read_training(souk: Souk, view: JobView) -> Training:
    """Of a job with `log_every: 1` and `log_samples: true`."""
    training = Training()
    for attempt in view.attempts:
        is_at_start = has_begun = False
        for event in _events(souk, view, attempt.number):
            kind, step = event["event"], event.get("step", 0)
            if kind == "started":
                is_at_start = has_begun = True
            elif kind == "resumed":
                training.resumed.append(step)
                training.undo_after(step)
                is_at_start = False
            elif kind == "samples":
                if is_at_start:  # from nothing
                    training.undo_after(0)
                    is_at_start = False
                if step in training.samples:
                    training.twice.append(step)
                training.samples[step] = event["ids"]
            elif kind == "step":
                training.losses[step] = event["loss"]
                if has_begun:
                    training.stepped_at.append(event["at"])
                    has_begun = False
    return training


def read_stream(souk: Souk, view: JobView, which: Any, *, attempt: int = 1, node_rank: int = 0) -> str:
    """All of a log, or of the events, of a job that has ended."""
    text, offset = "", 0
    for _ in range(PAGES_MAX):
        page = souk.stream(view.job_id, which, attempt=attempt, node_rank=node_rank, offset=offset)
        text, offset = text + page.text, page.next_offset
        if not page.text:
            return text
    raise AssertionError(f"a stream of more than {PAGES_MAX} pages")


def _events(souk: Souk, view: JobView, attempt: int) -> Iterator[dict[str, Any]]:
    """Whole lines alone: of a node that was killed the last one may be a part."""
    for line in read_stream(souk, view, "events", attempt=attempt).splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            yield event
