"""The serving engines on a real NVIDIA GPU: what they declare holds there too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from runtimes.contract import Capability, Env
from tests.integration.runtimes.serve.conftest import link_model
from tests.integration.runtimes.serve.replicas import Replica, make_llama

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU, torch sees none"),
]
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "The "}]
ENGINES = [
    "transformers",
    pytest.param("vllm", marks=pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")),
]


@pytest.fixture(scope="module", params=ENGINES)
def replica(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A tiny model, with heads of a size that GPU kernels have."""
    model = make_llama(tmp_path_factory.mktemp("llama"), width=128, heads=2)
    made = Replica(tmp_path_factory.mktemp("replica"), env={Env.DEVICE_KIND: "cuda"})
    made.write({"engine": request.param, "dtype": "bfloat16", "context": 128})
    try:
        yield link_model(made, model).start().until_ready()
    finally:
        made.end()


def ask(replica: Replica, **asked: Any) -> dict[str, Any]:
    status, answer = replica.ask(CHAT, {"model": "tiny", "messages": HELLO, "max_tokens": 8, "temperature": 0, **asked})
    assert status == 200, answer
    return answer


def test_chat_is_answered_and_counted(replica: Replica) -> None:
    assert ask(replica)["usage"]["completion_tokens"] >= 1
    assert replica.events("ready")[0]["device"] == "cuda"


def test_every_declared_capability_holds(replica: Replica) -> None:
    able = set(replica.events("ready")[0]["capabilities"])
    began = ask(replica, max_tokens=4)["choices"][0]["message"]["content"]
    if Capability.CONTINUES in able:
        messages = [*HELLO, {"role": "assistant", "content": began}]
        assert ask(replica, messages=messages, add_generation_prompt=False, continue_final_message=True)
    if Capability.SEED in able:
        first, second = (ask(replica, temperature=1, seed=7)["choices"][0]["message"]["content"] for _ in range(2))
        assert first == second
    if Capability.LOGPROBS in able:
        assert ask(replica, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    if Capability.MANY in able:
        assert len(ask(replica, n=2, temperature=1)["choices"]) == 2
    if Capability.JSON_OBJECT in able:
        text = ask(replica, response_format={"type": "json_object"}, max_tokens=100)["choices"][0]["message"]["content"]
        assert text.lstrip().startswith("{")
    if Capability.JSON_SCHEMA in able:
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                  "additionalProperties": False}  # fmt: skip
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        text = ask(replica, response_format=form, max_tokens=60)["choices"][0]["message"]["content"]
        assert isinstance(json.loads(text)["a"], bool)
    if Capability.PENALTIES in able:
        assert ask(replica, frequency_penalty=2)
    if Capability.STREAM_USAGE in able:
        body = {"messages": HELLO, "max_tokens": 4, "stream_options": {"include_usage": True}}
        *_, last = replica.stream(CHAT, body)
        assert last["usage"]["completion_tokens"] >= 1
