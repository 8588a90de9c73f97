"""Which engine serves a model here: the named one, or the first that can."""

from __future__ import annotations

from runtimes.serve.config import ServeConfig
from runtimes.serve.engines import load_engine
from runtimes.serve.engines.base import Devices, Engine
from runtimes.serve.errors import BadModel
from runtimes.serve.model import Model

ORDER = ("embed", "vllm", "transformers", "souk")
ORDER_VERIFIED = ("souk",)  # the one that commits to what it computed


def choose_engine(model: Model, devices: Devices, config: ServeConfig) -> Engine:
    """The engine; raises BadModel with each engine's reason."""
    if config.engine != "auto":
        names: tuple[str, ...] = (config.engine,)
    else:
        names = ORDER_VERIFIED if config.verify else ORDER
    reasons = []
    for name in names:
        try:
            engine = load_engine(name)
        except ImportError as error:
            reasons.append(f"{name}: its packages are not installed ({error})")
            continue
        why = engine.why_not(model, devices, config)
        if not why:
            return engine
        reasons.append(f"{name}: {why}")
    raise BadModel("no engine can serve this model here; " + "; ".join(reasons))
