"""`transformers serve` behind the common base: continuous batching on processors and on GPUs, for any causal model.

What its own command does not honour with continuous batching on (5.23: temperature and top_p are those of the first
request ever, stop strings are ignored, answers cannot be continued, streams report usage to everybody), its server
is given right by transformers_server.py. What is still not right is not declared: tools, seeds, penalties, log
probabilities, several choices, JSON formats.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec

from runtimes.contract import Capability
from runtimes.serve.config import ServeConfig
from runtimes.serve.engines.base import Devices, Engine, Launch, own_server
from runtimes.serve.model import Model, model_context

CONTEXT_FALLBACK = 2048  # of a model whose configuration has no length


class TransformersEngine(Engine):
    """Any causal model that transformers supports, in its own dtype."""

    name = "transformers"

    def why_not(self, model: Model, devices: Devices, config: ServeConfig) -> str:
        """It needs transformers' serving extra, a tokenizer, and weights that are not quantised."""
        if find_spec("fastapi") is None or find_spec("uvicorn") is None:
            return "transformers[serving] is not installed"
        if not model.tokenizer_digest:
            return "the model has no tokenizer.json"
        if config.quantization not in ("none", "bitsandbytes") or "quantization_config" in model.config:
            return f"it does not serve weights in {config.quantization}"
        if config.quantization == "bitsandbytes" and (devices.kind == "cpu" or find_spec("bitsandbytes") is None):
            return "bitsandbytes needs a GPU and its package"
        if config.verify:
            return "it does not commit to what it computed"
        return ""

    def capabilities(self, model: Model, config: ServeConfig) -> frozenset[Capability]:
        """What transformers_server.py does rightly."""
        plain = {Capability.COMPLETIONS, Capability.STREAM_USAGE}
        chat = {Capability.CHAT, Capability.CONTINUES} if model.chat_template is not None else set()
        return frozenset(plain | chat)

    def launch(self, model: Model, devices: Devices, config: ServeConfig) -> Launch:
        """Our server with its settings as JSON."""
        settings = {
            "folder": str(model.folder),
            "served_as": config.served_as,
            "device": devices.kind,
            "dtype": config.dtype,
            "quantization": config.quantization,
            "context": config.context or model_context(model) or CONTEXT_FALLBACK,
            "max_tokens": config.max_tokens,
            "in_flight": config.in_flight,
            "chat_template": str(model.chat_template or ""),
            "memory_bytes": devices.memory_bytes,
        }
        argv = own_server("runtimes.serve.engines.transformers_server", json.dumps(settings))
        return Launch(
            argv, {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
        )

    def version(self) -> str:
        """Of transformers."""
        return version("transformers")
