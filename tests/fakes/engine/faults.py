"""The faults that a test can order of the engine, for a number of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

FAULTS_MAX = 64

Kind = Literal[
    "die",  # the process is killed after `tokens`
    "cut",  # the connection is reset after `tokens`
    "end",  # the stream ends in good order after `tokens`, but without a finish reason and [DONE]
    "hang",  # nothing more comes after `tokens`
    "error",  # an error object comes in the stream after `tokens`
    "garbage",  # what comes after `tokens` is no SSE
    "status",  # `status` with an OpenAI error; after `ms`
    "page",  # `status` with an HTML page
    "slow",  # the head comes after `ms`
    "silent",  # no answer at all
    "endless_headers",  # a head without an end
    "endless_body",  # a body without an end
    "no_http",  # bytes that are no HTTP
    "empty",  # 200 with an empty body
    "usage",  # the counts are multiplied by `factor`
    "no_usage",  # no counts
    "other_text",  # fluent, and not what the model says
]


@dataclass
class Fault:
    """One kind of trouble; `times`: for so many requests, None for all; `path`: only for requests there."""

    kind: Kind
    tokens: int = 0
    status: int = 500
    ms: float = 0
    factor: int = 3
    times: int | None = None
    path: str = ""


@dataclass
class Faults:
    """The faults that wait for a request; the first that fits is taken."""

    waiting: list[Fault] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        """Let it happen from the next request on."""
        if len(self.waiting) >= FAULTS_MAX:
            raise ValueError(f"{FAULTS_MAX} faults wait already")
        self.waiting.append(fault)

    def clear(self) -> None:
        """From now on all is well."""
        self.waiting.clear()

    def take(self, path: str) -> Fault | None:
        """What is to go wrong with a request for `path`."""
        for fault in self.waiting:
            if path.startswith(fault.path):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self.waiting.remove(fault)
                self.taken[fault.kind] = self.taken.get(fault.kind, 0) + 1
                return fault
        return None


def from_json(data: dict[str, Any]) -> Fault:
    """A fault as POST /fake/faults names it; raises TypeError for a field that is none."""
    return Fault(**data)
