"""Embeddings by an engine of our own: the mean over a text's hidden states, of any encoder or decoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from runtimes.contract import Capability
from runtimes.serve.config import ServeConfig
from runtimes.serve.engines.base import Devices, Engine, Launch, Probe, own_server
from runtimes.serve.model import Model, model_context

CONTEXT_FALLBACK = 512  # of a model whose configuration has no length
CONTEXT_MAX = 1 << 22
COUNTS_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")  # their first position is after the padding's
GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


class EmbedEngine(Engine):
    """Text to vectors of length 1."""

    name = "embed"

    def why_not(self, model: Model, devices: Devices, config: ServeConfig) -> str:
        """It needs a tokenizer; a model that generates text is one for embeddings only if the job file declares it."""
        if find_spec("fastapi") is None or find_spec("uvicorn") is None:
            return "transformers[serving] is not installed"
        if not model.tokenizer_digest:
            return "the model has no tokenizer.json"
        if config.verify:
            return "it does not commit to what it computed"
        if config.quantization != "none":
            return f"it does not serve weights in {config.quantization}"
        made_of = [str(name) for name in model.config.get("architectures") or []]
        if config.engine != "embed" and (not made_of or any(name.endswith(GENERATES) for name in made_of)):
            return "the model generates text"
        return ""

    def capabilities(self, model: Model, config: ServeConfig) -> frozenset[Capability]:
        """Embeddings alone."""
        return frozenset({Capability.EMBEDDINGS})

    def launch(self, model: Model, devices: Devices, config: ServeConfig) -> Launch:
        """Our server with its settings as JSON."""
        settings = {
            "folder": str(model.folder),
            "served_as": config.served_as,
            "device": devices.kind,
            "dtype": config.dtype,
            "context": min(config.context or CONTEXT_MAX, _context(model)),
        }
        argv = own_server("runtimes.serve.engines.embed_server", json.dumps(settings))
        return Launch(
            argv, {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
        )

    def version(self) -> str:
        """Of transformers."""
        return version("transformers")

    def probe(self, config: ServeConfig) -> Probe:
        """One short text."""
        return Probe("/v1/embeddings", {"model": config.served_as, "input": "1"})

    def is_answer(self, answer: Mapping[str, Any]) -> bool:
        """Whether there is a vector, of length 1."""
        data = answer.get("data")
        vector = data[0].get("embedding") if isinstance(data, list) and data and isinstance(data[0], dict) else None
        return isinstance(vector, list) and abs(sum(number * number for number in vector) - 1) < 0.01


def _context(model: Model) -> int:
    """Tokens of a text that have a position."""
    positions = model_context(model) or CONTEXT_FALLBACK
    if model.config.get("model_type") in COUNTS_FROM_PADDING:
        return positions - int(model.config.get("pad_token_id") or 0) - 1
    return positions
