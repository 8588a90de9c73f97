"""vLLM on NVIDIA GPUs: its command line, derived from the devices and from the model's configuration.

tensor-parallel-size    the most GPUs over which the model's heads divide evenly
gpu-memory-utilization  all but what the driver and the first graphs take of each
max-model-len           the configured length; else what the model was made for, as far as its keys and values fit
max-num-seqs            twice what the replica should bear at once: a queue costs nothing, memory is taken by use
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from runtimes.contract import Capability
from runtimes.serve.config import ServeConfig
from runtimes.serve.engines.base import ENGINE_SOCKET, Counters, Devices, Engine, Launch
from runtimes.serve.model import Model, model_context, text_config
from runtimes.serve.weights import PLAIN_TEMPLATE

GIB = 1 << 30
MEMORY_SHARE_MAX = 0.92
MEMORY_LEFT_BYTES = 3 * GIB // 2
WEIGHTS_OVERHEAD = 1.1  # activations and graphs beside the weights
SEQUENCES_MIN, SEQUENCES_MAX = 16, 1024
CONTEXT_MIN = 256
BYTES_A_VALUE = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}
# By the family of the model: tool calls in another form would be sent as text.
TOOL_PARSERS = {
    "qwen2": "hermes",
    "qwen3": "hermes",
    "qwen3_moe": "hermes",
    "llama": "llama3_json",
    "mistral": "mistral",
}
QUANTIZATIONS = {"fp8": "fp8", "awq": "awq", "gptq": "gptq", "bitsandbytes": "bitsandbytes"}


class VllmEngine(Engine):
    """vLLM's own server, on its Unix socket."""

    name = "vllm"
    counters = Counters(
        input_tokens="vllm:prompt_tokens_total",
        output_tokens="vllm:generation_tokens_total",
        queued="vllm:num_requests_waiting",
    )

    def why_not(self, model: Model, devices: Devices, config: ServeConfig) -> str:
        """It needs GPUs, its package, and GPU memory for the weights and a context."""
        if devices.kind != "cuda":
            return "it needs GPUs"
        if find_spec("vllm") is None:
            return "it is not installed"
        if config.verify:
            return "it does not commit to what it computed"
        if devices.memory_bytes and _context_that_fits(model, devices, config) < CONTEXT_MIN:
            needed = int(model.weights_bytes * _weights_factor(config) * WEIGHTS_OVERHEAD) // GIB
            return f"the weights need about {needed} GiB, more than {_ranks(model, devices)} GPUs have room for"
        return ""

    def capabilities(self, model: Model, config: ServeConfig) -> frozenset[Capability]:
        """All that OpenAI's interface has; tools only of families whose form of calling is known here."""
        able = {
            Capability.COMPLETIONS,
            Capability.JSON_OBJECT,
            Capability.JSON_SCHEMA,
            Capability.LOGPROBS,
            Capability.MANY,
            Capability.STREAM_USAGE,
            Capability.SEED,
            Capability.PENALTIES,
        }
        if model.chat_template is not None:
            able |= {Capability.CHAT, Capability.CONTINUES}
            if _tool_parser(model):
                able |= {Capability.TOOLS, Capability.TOOL_CHOICE}
        return frozenset(able)

    def launch(self, model: Model, devices: Devices, config: ServeConfig) -> Launch:
        """Its OpenAI server's command line."""
        options = {
            "model": str(model.folder),
            "served-model-name": config.served_as,
            "uds": ENGINE_SOCKET,
            "tensor-parallel-size": _ranks(model, devices),
            "gpu-memory-utilization": f"{_memory_share(devices):.2f}",
            "max-model-len": _context(model, devices, config),
            "max-num-seqs": min(max(2 * config.in_flight, SEQUENCES_MIN), SEQUENCES_MAX),
            "dtype": config.dtype,
            "load-format": "safetensors",  # nothing else: other formats can run code
        }
        if config.quantization != "none":
            options["quantization"] = QUANTIZATIONS[config.quantization]
        if model.chat_template == PLAIN_TEMPLATE:
            options["chat-template"] = str(PLAIN_TEMPLATE)
        if "vision_config" in model.config or "audio_config" in model.config:  # it would fetch what callers name
            options["limit-mm-per-prompt"] = json.dumps({"image": 0, "video": 0, "audio": 0})
        flags = ["--enable-prefix-caching", "--disable-uvicorn-access-log"]
        if parser := _tool_parser(model):
            options["tool-call-parser"] = parser
            flags.append("--enable-auto-tool-choice")
        argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        argv += [part for name, value in options.items() for part in (f"--{name}", str(value))]
        env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        return Launch([*argv, *flags], env)

    def version(self) -> str:
        """Of vLLM."""
        return version("vllm")


def _ranks(model: Model, devices: Devices) -> int:
    """The most GPUs over which attention's heads divide, and over which keys' heads divide or repeat evenly."""
    config = text_config(model)
    heads = int(config.get("num_attention_heads") or 1)
    keys = int(config.get("num_key_value_heads") or heads)
    fit = [n for n in range(1, devices.count + 1) if heads % n == 0 and (keys % n == 0 or n % keys == 0)]
    return max(fit, default=1)


def _memory_share(devices: Devices) -> float:
    if not devices.memory_bytes:
        return 0.9
    return min(MEMORY_SHARE_MAX, round(1 - MEMORY_LEFT_BYTES / devices.memory_bytes, 2))


def _weights_factor(config: ServeConfig) -> float:
    """What the weights take once loaded: fp8 and bitsandbytes make them smaller, the others are so already."""
    return {"fp8": 0.5, "bitsandbytes": 0.3}.get(config.quantization, 1.0)


def _context_that_fits(model: Model, devices: Devices, config: ServeConfig) -> int:
    """Tokens of one sequence for which the GPUs have memory beside the weights."""
    described = text_config(model)
    heads = int(described.get("num_attention_heads") or 1)
    head = int(described.get("head_dim") or int(described.get("hidden_size") or 0) // heads)
    keys = int(described.get("num_key_value_heads") or heads)
    layers = int(described.get("num_hidden_layers") or 1)
    token_bytes = 2 * layers * keys * head * BYTES_A_VALUE[config.dtype]
    ranks = _ranks(model, devices)
    room = devices.memory_bytes * _memory_share(devices) * ranks
    room -= model.weights_bytes * _weights_factor(config) * WEIGHTS_OVERHEAD
    return max(int(room // max(token_bytes, 1)), 0)


def _context(model: Model, devices: Devices, config: ServeConfig) -> int | str:
    if config.context is not None:
        return config.context
    made_for = model_context(model)
    if made_for is None or not devices.memory_bytes:
        return made_for or "auto"
    return min(made_for, _context_that_fits(model, devices, config))


def _tool_parser(model: Model) -> str:
    """The parser for this model's form of calling tools; empty if its template has none, or the form is unknown."""
    if model.chat_template is None or "tools" not in _text(model.chat_template):
        return ""
    return TOOL_PARSERS.get(str(text_config(model).get("model_type")), "")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
