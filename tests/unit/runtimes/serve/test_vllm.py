"""vLLM's command line follows from devices, model and configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import Capability
from runtimes.serve.config import ServeConfig, Source
from runtimes.serve.engines.base import Devices
from runtimes.serve.engines.vllm import VllmEngine
from runtimes.serve.model import Model
from runtimes.serve.weights import PLAIN_TEMPLATE

GIB = 1 << 30
QWEN_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "max_position_embeddings": 131072,
}
CONFIG = ServeConfig(model=Source("job", "x"), served_as="qwen", in_flight=64)


def model(tmp_path: Path, *, template: str = "{{ tools }}", gib: int = 15, **config: Any) -> Model:
    path = tmp_path / "chat_template.jinja"
    path.write_text(template)
    return Model(tmp_path, QWEN_7B | config, "d", "t", gib * GIB, path)


def options(argv: list[str]) -> dict[str, str]:
    found = {}
    for name, value in zip(argv, [*argv[1:], ""], strict=True):
        if name.startswith("--"):
            found[name.removeprefix("--")] = "" if value.startswith("--") else value
    return found


def launch(asked: Model, devices: Devices, config: ServeConfig = CONFIG) -> dict[str, str]:
    return options(VllmEngine().launch(asked, devices, config).argv)


def test_one_gpu_gets_what_the_model_was_made_for(tmp_path: Path) -> None:
    found = launch(model(tmp_path), Devices("cuda", 1, 80 * GIB))
    assert found["tensor-parallel-size"] == "1"
    assert found["max-model-len"] == "131072"
    assert found["max-num-seqs"] == "128"
    assert found["served-model-name"] == "qwen"
    assert found["uds"] == "engine.sock"
    assert found["load-format"] == "safetensors"
    assert "trust-remote-code" not in found


def test_small_gpu_gets_the_context_that_fits(tmp_path: Path) -> None:
    found = launch(model(tmp_path), Devices("cuda", 1, 20 * GIB))
    assert 256 <= int(found["max-model-len"]) < 131072
    assert float(found["gpu-memory-utilization"]) <= 0.92


def test_asked_context_is_taken_as_it_is(tmp_path: Path) -> None:
    found = launch(model(tmp_path), Devices("cuda", 1, 80 * GIB), replace(CONFIG, context=4096))
    assert found["max-model-len"] == "4096"


@pytest.mark.parametrize(("gpus", "ranks"), [(1, 1), (2, 2), (3, 2), (4, 4), (6, 4), (8, 4)])
def test_ranks_divide_the_heads(tmp_path: Path, gpus: int, ranks: int) -> None:
    """28 heads and 4 heads of keys: over 7 the keys would not divide."""
    assert launch(model(tmp_path), Devices("cuda", gpus, 80 * GIB))["tensor-parallel-size"] == str(ranks)


def test_tools_are_declared_and_parsed_only_where_their_form_is_known(tmp_path: Path) -> None:
    engine = VllmEngine()
    known = model(tmp_path)
    assert Capability.TOOLS in engine.capabilities(known, CONFIG)
    assert launch(known, Devices("cuda", 1, 0))["tool-call-parser"] == "hermes"
    for unknown in (model(tmp_path, model_type="phi3"), model(tmp_path, template="{{ messages }}")):
        assert Capability.TOOLS not in engine.capabilities(unknown, CONFIG)
        assert "tool-call-parser" not in launch(unknown, Devices("cuda", 1, 0))


def test_model_without_a_template_gets_the_plain_one(tmp_path: Path) -> None:
    asked = replace(model(tmp_path), chat_template=PLAIN_TEMPLATE)
    assert launch(asked, Devices("cuda", 1, 0))["chat-template"] == str(PLAIN_TEMPLATE)


def test_model_that_sees_fetches_no_pictures(tmp_path: Path) -> None:
    asked = model(tmp_path, vision_config={}, text_config=QWEN_7B)
    assert '"image": 0' in launch(asked, Devices("cuda", 1, 0))["limit-mm-per-prompt"]


def test_quantisation_is_handed_on(tmp_path: Path) -> None:
    assert launch(model(tmp_path), Devices("cuda", 1, 0), replace(CONFIG, quantization="fp8"))["quantization"] == "fp8"


def test_why_not_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = VllmEngine()
    assert engine.why_not(model(tmp_path), Devices("cpu", 1, 0), CONFIG) == "it needs GPUs"
    monkeypatch.setattr("runtimes.serve.engines.vllm.find_spec", lambda _name: object())
    assert engine.why_not(model(tmp_path), Devices("cuda", 1, 80 * GIB), CONFIG) == ""
    too_big = engine.why_not(model(tmp_path, gib=140), Devices("cuda", 1, 80 * GIB), CONFIG)
    assert too_big.startswith("the weights need about 154 GiB")
    assert engine.why_not(model(tmp_path, gib=140), Devices("cuda", 4, 80 * GIB), CONFIG) == ""
