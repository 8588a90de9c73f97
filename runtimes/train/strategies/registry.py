"""The training strategies by name. This module needs no torch.

To add one: a module with a subclass of Strategy (base.py), a row here, and its name in `strategy` of
`jobs/spec/kinds/train.py`, for the job file to offer it (a test compares the two).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtimes.train.strategies.base import Strategy

DEFAULT_STRATEGY = "fsdp2"
STRATEGIES = {
    "fsdp2": "runtimes.train.strategies.fsdp2:Fsdp2",
    "hsdp": "runtimes.train.strategies.hsdp:Hsdp",
    "ddp": "runtimes.train.strategies.ddp:Ddp",
}


def check_strategy(value: Any) -> str:
    """The name, where the table has it; raises ValueError with the names that it has."""
    if not isinstance(value, str) or value not in STRATEGIES:
        raise ValueError(f"must be one of {', '.join(STRATEGIES)}")
    return value


def load_strategy(name: str) -> Strategy:
    """The strategy of this name, its module imported now; raises KeyError for a name that the table lacks."""
    module, _, attribute = STRATEGIES[name].partition(":")
    strategy: Strategy = getattr(import_module(module), attribute)()
    return strategy
