"""What is planned: a training's settings and a model's configuration, as strangers wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtimes.checking import Unreadable, read_json
from runtimes.shapes.families import read_shape
from runtimes.shapes.shape import ModelMistake, ModelShape
from runtimes.train.config import TrainConfig, parse_config, settled
from runtimes.train.errors import BadConfig

Settings = TrainConfig  # a name for callers that import the planner alone


def read_model_config(path: Path) -> object:
    """The content of a config.json, of at most a MiB. Raises ModelMistake."""
    try:
        return read_json(path)
    except Unreadable as error:
        raise ModelMistake(str(error)) from error


def read_training(
    settings: Mapping[str, Any], model_config: object, *, is_shipped: bool, has_weights: bool
) -> tuple[ModelShape, Settings]:
    """The model's shape and the settings with the sequence length that the runtime will take. Raises ModelMistake.

    `settings`: a job file's `train` section and its work, as the runtime is given it; `model_config`: config.json's
    content. A model without weights has the vocabulary that the settings say.
    """
    try:
        config = parse_config(dict(settings))
    except BadConfig as error:
        raise ModelMistake(str(error)) from error
    shape = read_shape(model_config)
    if not has_weights and config.vocabulary_size is not None:
        shape = replace(shape, vocabulary=config.vocabulary_size)
    return shape, settled(config, has_weights=has_weights, is_shipped=is_shipped, length_max=shape.length_max)


def method_of(config: Settings) -> str:
    """What is trained: `full`, all weights; `lora`, adapters; `qlora`, adapters beside weights in 4 bits."""
    if config.quantize is not None:
        return "qlora"
    return "full" if config.lora is None else "lora"
