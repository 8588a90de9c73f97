"""The engine is the named one or the first that can, and the message names the reason of each that cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import EventWriter
from runtimes.serve.choose import choose_engine
from runtimes.serve.config import ServeConfig, Source
from runtimes.serve.engines.base import Devices
from runtimes.serve.engines.souk.adapter import SoukEngine
from runtimes.serve.errors import BadModel
from runtimes.serve.model import Model
from runtimes.serve.weights import find_model

AUTO = ServeConfig(model=Source("job", "x"), served_as="tiny")
CPU = Devices("cpu", 1, 8 << 30)


@pytest.fixture(scope="module")
def model(llama: Path) -> Model:
    return find_model(Source("job", "x"), input_dir=llama, lent_dir=llama, events=EventWriter(""))


def test_text_model_on_a_processor_is_served_by_transformers(model: Model) -> None:
    assert choose_engine(model, CPU, AUTO).name == "transformers"


def test_model_without_a_head_gives_embeddings(model: Model) -> None:
    encoder = replace(model, config=dict(model.config) | {"architectures": ["BertModel"]})
    assert choose_engine(encoder, CPU, AUTO).name == "embed"


def test_text_model_gives_embeddings_where_that_is_asked_for(model: Model) -> None:
    assert choose_engine(model, CPU, replace(AUTO, engine="embed")).name == "embed"


def test_named_engine_that_cannot_is_refused_with_its_reason(model: Model) -> None:
    with pytest.raises(BadModel, match="vllm: it needs GPUs"):
        choose_engine(model, CPU, replace(AUTO, engine="vllm"))


def test_every_engine_says_why_not(model: Model) -> None:
    awq = replace(AUTO, quantization="awq")
    with pytest.raises(BadModel) as raised:
        choose_engine(model, CPU, awq)
    assert {"embed:", "vllm:", "transformers:"} <= set(str(raised.value).split())


@pytest.mark.parametrize(
    ("said", "windows"),
    [
        ({}, False),
        ({"sliding_window": None}, False),
        ({"sliding_window": 4096}, True),  # Mistral 7B of 2023
        ({"sliding_window": 32768, "use_sliding_window": False}, False),  # Qwen 2
        ({"sliding_window": 32768, "use_sliding_window": True}, True),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 2}, False),
        ({"sliding_window": 4096, "layer_types": ["sliding_attention", "full_attention"]}, True),  # Gemma 2
    ],
)
def test_our_engine_serves_no_model_with_windows(model: Model, said: dict[str, Any], windows: bool) -> None:
    why = SoukEngine().why_not(replace(model, config=dict(model.config) | said), CPU, AUTO)
    assert why == ("the model does not attend to its whole sequence" if windows else "")
