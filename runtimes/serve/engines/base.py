"""What every engine promises. `tests/integration/jobs/gateway/conformance.py` tests each declared capability.

An engine is a child process that answers OpenAI-style HTTP on the Unix socket ENGINE_SOCKET in its working directory,
and does nothing else there. It

- answers GET /health with 200 once it accepts requests (which proves nothing yet: one real token does);
- answers requests for the model name `served_as`;
- ends with its whole process group, and when the process that started it dies;
- counts what it did: GET /metrics in the text format of Prometheus, under the names in `Counters`.

Own engines also answer GET /facts with JSON: `context`, `vocabulary`, `dtype`, and what else `ready` should report.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from runtimes.contract import Capability
from runtimes.serve.config import ServeConfig
from runtimes.serve.model import Model, model_context, text_config

ENGINE_SOCKET = "engine.sock"  # in the engine's working directory, which no other user may enter
PROBE_TOKENS = 1


@dataclass(frozen=True)
class Devices:
    """What this replica computes on."""

    kind: str  # "cpu" or "cuda"
    count: int
    memory_bytes: int  # of one GPU; of the container where it computes on processors. 0: not known


@dataclass(frozen=True)
class Launch:
    """How to start an engine: in a working directory of its own, with these additions to the environment."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Counters:
    """Names of an engine's metrics; the values of all samples of one name are added up."""

    input_tokens: str = "souk_input_tokens_total"
    output_tokens: str = "souk_output_tokens_total"
    queued: str = "souk_requests_waiting"


@dataclass(frozen=True)
class Probe:
    """One small real request, and the field under which a good answer counts what it made."""

    path: str
    body: dict[str, Any]


class Engine(ABC):
    """One way to serve a model."""

    name: ClassVar[str]
    counters: ClassVar[Counters] = Counters()
    extra_paths: ClassVar[frozenset[str]] = frozenset()  # beyond OpenAI's, that callers may request

    @abstractmethod
    def why_not(self, model: Model, devices: Devices, config: ServeConfig) -> str:
        """Why this engine cannot serve this model here, as half a sentence; empty when it can. Cheap, no torch."""

    @abstractmethod
    def capabilities(self, model: Model, config: ServeConfig) -> frozenset[Capability]:
        """What it can do with this model. Declared is what it does rightly; what it only accepts is not declared."""

    @abstractmethod
    def launch(self, model: Model, devices: Devices, config: ServeConfig) -> Launch:
        """How to start it."""

    @abstractmethod
    def version(self) -> str:
        """Of the program that computes."""

    def probe(self, config: ServeConfig) -> Probe:
        """A request that only a model that computes can answer."""
        body = {"model": config.served_as, "prompt": "1", "max_tokens": PROBE_TOKENS, "temperature": 0}
        return Probe("/v1/completions", body)

    def is_answer(self, answer: Mapping[str, Any]) -> bool:
        """Whether an answer to the probe holds what was computed."""
        usage = answer.get("usage")
        return isinstance(usage, dict) and usage.get("completion_tokens", 0) >= PROBE_TOKENS

    def facts(self, model: Model, config: ServeConfig, answered: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `ready` beside the engine's name; `answered`: the body of GET /facts, empty without one."""
        facts: dict[str, Any] = {
            "context": config.context or model_context(model),
            "vocabulary": text_config(model).get("vocab_size"),
            "dtype": config.dtype,
        }
        return facts | dict(answered)


def own_server(module: str, *arguments: str) -> list[str]:
    """The command line of an engine of our own."""
    return [sys.executable, "-m", module, *arguments]
