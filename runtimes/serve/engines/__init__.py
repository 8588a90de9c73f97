"""The engines by name. Each is imported when it is asked for: none costs who does not use it anything."""

from __future__ import annotations

from importlib import import_module

from runtimes.serve.engines.base import Engine

ENGINES = {
    "vllm": "runtimes.serve.engines.vllm:VllmEngine",
    "transformers": "runtimes.serve.engines.transformers:TransformersEngine",
    "souk": "runtimes.serve.engines.souk.adapter:SoukEngine",
    "embed": "runtimes.serve.engines.embed:EmbedEngine",
}


def load_engine(name: str) -> Engine:
    """The engine of this name; raises KeyError for one that is not known."""
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), attribute)()
    return engine
