"""The same bits each time, on the same devices: torch takes algorithms alone whose sums have one order.

On a processor a training is the same bit by bit without this. What it changes on a GPU was not measured yet.
"""

from __future__ import annotations

import os
from typing import Any

import torch

WORKSPACE = ":4096:8"  # of cuBLAS: buffers of which each stream has its own, as its documentation asks


def make_deterministic() -> None:
    """Call it before anything is computed on a GPU: cuBLAS reads its variable when it starts.

    An operation that has no such algorithm then raises RuntimeError, which names it.
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = WORKSPACE
    torch.use_deterministic_algorithms(True)
    backends: Any = torch.backends  # partly untyped
    backends.cudnn.benchmark = False  # else the fastest algorithm of the moment is taken
    filling: Any = torch.utils.deterministic  # partly untyped
    filling.fill_uninitialized_memory = False  # it costs time, and nothing here reads what it never wrote
