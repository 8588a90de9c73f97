"""The engines by name. A module is imported when its engine is chosen, so that the others' packages may be missing.

base.py                   what every engine promises
vllm.py                   vLLM
transformers.py           `transformers serve`, put together by us; its process is transformers_server.py
transformers_request.py   a request's options, checked
generation.py             continuous batching with each request's sampling
stops.py                  stop strings in a stream
embed.py                  embeddings; its process is embed_server.py
listening.py              what our own engines' processes share
souk/                     our own engine, which commits to what it computes
"""

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
