"""`kind: eval`: the built-in evaluation runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from jobs.kinds.base import Kind
from jobs.models import Job
from jobs.spec import Spec, from_wire
from jobs.spec.kinds.eval import EvalSpec, endpoints_of
from provider_agent.protocol import Program

ANSWERS_FILE: Final = "answers.jsonl"  # runtimes/evaluate/answers.py; a test compares the two
ANSWERS_BYTES_MAX: Final = 2 * 1024**3
ANSWER_BYTES_MIN: Final = 91  # of the shortest line, with an empty text; the same test compares it


class Eval(Kind):
    """An evaluation, which goes on from the answers that its newest checkpoint has when an attempt is lost."""

    spec_kind = EvalSpec()
    checkpoint_files: ClassVar[Mapping[str, int] | None] = {ANSWERS_FILE: ANSWERS_BYTES_MAX}
    step_bytes_min: ClassVar[int] = ANSWER_BYTES_MIN  # a step is an answer

    def asks_endpoints(self, job: Job) -> bool:
        """Whether there are endpoints among its models."""
        return bool(endpoints_of(from_wire(job.spec)))

    def program(self, spec: Spec) -> Program:
        """The evaluation runtime."""
        return super().program(spec).model_copy(update={"runtime": "eval"})
