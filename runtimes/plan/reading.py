"""What is planned: a training's settings and a model's configuration, as strangers wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtimes.checking import Unreadable, read_json
from runtimes.plan.families import read_shape
from runtimes.plan.shapes import ModelMistake, ModelShape
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


def keys_that_count(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config.json decides its shape: the keys that `read_shape` looks at, as far as they hold plain values.

    `read_shape` of the result is the same. Empty for a model that it does not know: nothing can be reckoned of it.
    """
    seen = _Seen(model_config)
    try:
        read_shape(seen)
    except ModelMistake:
        return {}
    plain = {key: value for key, value in seen.found.items() if value is None or isinstance(value, int | float | str)}
    return dict(sorted(plain.items()))


class _Seen(Mapping[str, Any]):
    """A mapping that remembers which of its keys were read."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content, self.found = content, dict[str, Any]()

    def __getitem__(self, key: str) -> Any:
        self.found[key] = self._content[key]
        return self.found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)
