"""The model of a replica: its folder, its configuration and what is read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Model:
    """The weights as they lie here, checked. Made by weights.find_model."""

    folder: Path
    config: Mapping[str, Any]  # its config.json
    digest: str  # SHA-256 over the names and digests of what an engine reads
    tokenizer_digest: str  # SHA-256 of tokenizer.json; empty if the file is absent
    weights_bytes: int
    chat_template: Path | None  # the model's own, or the one for models without; None where it cannot chat


def text_config(model: Model) -> Mapping[str, Any]:
    """The part of a configuration that describes the language model, where it also describes others."""
    part = model.config.get("text_config")
    return part if isinstance(part, dict) else model.config


def has_sliding_windows(config: Mapping[str, Any]) -> bool:
    """Whether some layer has sliding-window attention, by a language model's configuration.

    Newer ones name each layer's kind. Older ones have the size of a window, some of them with a switch beside it
    (Qwen's) and some without (Mistral's).
    """
    if kinds := config.get("layer_types"):
        return set(kinds) != {"full_attention"}
    switch = config.get("use_sliding_window")
    return bool(config.get("sliding_window")) if switch is None else bool(switch)


def model_context(model: Model) -> int | None:
    """Tokens that the model was made for, from its configuration."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = text_config(model).get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None
