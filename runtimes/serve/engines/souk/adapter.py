"""Souk's own engine behind the common base. No torch here."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

from runtimes.contract import Capability
from runtimes.serve.config import ServeConfig
from runtimes.serve.engines.base import ENGINE_SOCKET, Devices, Engine, Launch, own_server
from runtimes.serve.model import Model, has_sliding_windows, text_config
from runtimes.serve.weights import PLAIN_TEMPLATE

SLOTS_MAX = 256


class SoukEngine(Engine):
    """Any causal model that attends to its whole sequence, on one device; it commits to what it computed."""

    name = "souk"

    def why_not(self, model: Model, devices: Devices, config: ServeConfig) -> str:
        """It needs a tokenizer, weights that are not quantised, and no windows."""
        if find_spec("transformers") is None or find_spec("uvicorn") is None:
            return "transformers[serving] is not installed"
        if not model.tokenizer_digest:
            return "the model has no tokenizer.json"
        if config.quantization != "none" or "quantization_config" in model.config:
            return "it does not serve quantised weights"
        if has_sliding_windows(text_config(model)):
            return "the model does not attend to its whole sequence"
        return ""

    def capabilities(self, model: Model, config: ServeConfig) -> frozenset[Capability]:
        """Everything but tools, JSON formats, penalties and embeddings."""
        able = {
            Capability.COMPLETIONS,
            Capability.LOGPROBS,
            Capability.MANY,
            Capability.STREAM_USAGE,
            Capability.SEED,
            Capability.CONTINUES,
            Capability.COMMITS,
        }
        return frozenset(able | ({Capability.CHAT} if model.chat_template is not None else set()))

    def launch(self, model: Model, devices: Devices, config: ServeConfig) -> Launch:
        """Our server, with a slot for each request at once."""
        argv = ["--model", str(model.folder), "--uds", ENGINE_SOCKET, "--served-as", config.served_as]
        argv += ["--device", devices.kind, "--dtype", config.dtype, "--digest", model.digest]
        argv += ["--slots", str(min(config.in_flight, SLOTS_MAX)), "--max-tokens", str(config.max_tokens)]
        argv += ["--context", str(config.context)] if config.context else []
        # A model's own template comes with its tokenizer, from whichever file it is in.
        argv += ["--chat-template", str(PLAIN_TEMPLATE)] if model.chat_template == PLAIN_TEMPLATE else []
        environment = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
        return Launch(own_server("runtimes.serve.engines.souk", *argv), environment)

    def version(self) -> str:
        """Of transformers, whose models it computes."""
        return version("transformers")
