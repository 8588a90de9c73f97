"""What a decoder's blocks do while training: compute anew what would take memory; be compiled."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from runtimes.train.model import decoder_blocks

ATEN: Any = torch.ops.aten
# Kept by `selective`: what takes long to compute for the memory that it takes (torchtitan's list, without collectives).
# Not `bmm`: of attention that is written out that would be the scores, which grow with the square of a text's length.
KEPT = {
    ATEN.mm.default,
    ATEN.addmm.default,
    ATEN._scaled_dot_product_efficient_attention.default,
    ATEN._scaled_dot_product_flash_attention.default,
    ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    ATEN._scaled_dot_product_cudnn_attention.default,
}


def prepare_blocks(model: nn.Module, *, checkpointing: str, compiles: bool) -> None:
    """Change the forward of each block, in place; evaluation and sampling stay as they were.

    `checkpointing`: `none`; `selective`, which keeps the results of products with weights and of torch's attention, and
    computes the rest anew; `full`, which keeps a block's input alone. Losses and gradients are the same in each.
    """
    for block in decoder_blocks(model):
        plain: Callable[..., Any] = block.forward
        trained: Any = plain
        if checkpointing != "none":
            contexts: dict[str, Any] = {} if checkpointing == "full" else {"context_fn": _selective}
            trained = partial(checkpoint, plain, use_reentrant=False, **contexts)
        if compiles:
            trained = torch.compile(trained)
        untyped: Any = block
        untyped.forward = partial(_forward, block, plain, trained)


def prepare_compiler(device: torch.device, work_dir: Path) -> bool:
    """Whether there are a compiler and headers for what `torch.compile` writes; its results are kept below `work_dir`.

    Never in a folder that programs share: whoever runs before could leave code there for the next one.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work_dir / "cache" / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(work_dir / "cache" / "triton")
    # As torch's compilers look for it; what they write includes Python's headers.
    variable, names = ("CC", ["clang", "gcc"]) if device.type == "cuda" else ("CXX", ["g++"])
    wanted = [os.environ[variable]] if os.environ.get(variable) else names
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return headers.is_file() and any(shutil.which(name) for name in wanted)


def _forward(
    block: nn.Module, plain: Callable[..., Any], trained: Callable[..., Any], /, *args: Any, **named: Any
) -> Any:
    # A text that is sampled has another length at each token: compiled, each would be compiled anew.
    return (trained if block.training and torch.is_grad_enabled() else plain)(*args, **named)


def _selective() -> Any:
    make: Any = create_selective_checkpoint_contexts  # untyped there
    return make(_keeps)


def _keeps(context: Any, operation: Any, *args: Any, **named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
