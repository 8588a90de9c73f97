"""What the command shows of the events of a training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from jobs.client.watch import event_text
from runtimes.contract import EventKind, EventWriter

STARTED = {"parameters": 7000, "steps_total": 1200, "world_size": 2, "device": "cpu", "dtype": "auto"}


@pytest.mark.parametrize(
    ("kind", "event", "text"),
    [
        (EventKind.EVALUATED, {"step": 4, "loss": 2.0}, "step 4: evaluation loss 2.0000"),
        (EventKind.EVALUATED, {"step": 4, "loss": math.nan}, "step 4: evaluation loss not finite"),
        (
            EventKind.STOPPED_EARLY,
            {"step": 9, "steps_total": 20, "best_step": 3, "best_loss": 1.5},
            "step 9: ends early, no evaluation was better than 1.5000, of step 3",
        ),
        (EventKind.STARTED, STARTED, "training 7,000 parameters for 1,200 steps on 2 ranks (cpu, auto)"),
        (
            EventKind.STARTED,
            STARTED | {"model": "tuned/model", "requests": 1200},  # of an evaluation
            "asking tuned/model 1,200 requests on 2 ranks (cpu, auto)",
        ),
        (EventKind.EVALUATED, {"score": 4}, "evaluated: score 4"),  # a program's own
    ],
)
def test_events_are_shown_in_words(kind: EventKind, event: dict[str, Any], text: str, tmp_path: Path) -> None:
    EventWriter(str(tmp_path / "events")).write(kind, **event)
    assert event_text(json.loads((tmp_path / "events").read_text())) == text
