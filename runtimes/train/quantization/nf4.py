"""A weight in NF4, the 4-bit numbers of QLoRA (https://arxiv.org/abs/2305.14314, section 3), by bitsandbytes.

Each block of 64 numbers is divided by its largest one, and each quotient becomes the nearest of sixteen. What a block
was divided by is kept in 8 bits, in blocks of 256 of them that have a scale of their own (double quantisation): 4.13
bits a number.

All of it lies in one flat tensor, of the dtype that the training computes in though its bytes mean something else. So
a strategy shards, moves and gathers it as any parameter, and never casts it.

    float32   the mean of the blocks' scales
    float32   a scale for each 256 blocks
    uint8     two weights a byte
    uint8     a block's scale
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from runtimes.train.errors import BadData, TrainError

BLOCK = 64
BLOCKS_OF_SCALE = 256
KIND = "nf4"


def check_library() -> None:
    """Raise TrainError where bitsandbytes is not installed: that is the node's matter, not the job's."""
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise TrainError("quantize needs bitsandbytes, which this node's runtime does not have") from error


def quantize(weight: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """The weight's numbers in one flat tensor of the dtype `storage`, on its device. Raises BadData: not finite."""
    from bitsandbytes import functional

    if not bool(torch.isfinite(weight).all()):
        raise BadData("the model has weights that are not finite")
    make: Any = functional.quantize_4bit  # partly untyped there
    codes, state = make(weight.contiguous(), blocksize=BLOCK, quant_type=KIND, compress_statistics=True)
    parts = [state.offset.reshape(1).float(), state.state2.absmax.float(), codes, state.absmax]
    raw = torch.cat([part.reshape(-1).contiguous().view(torch.uint8) for part in parts])
    return torch.nn.functional.pad(raw, (0, -len(raw) % 4)).view(storage)


def dequantize(packed: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """The weight of this shape again, in `dtype`, to about a tenth of what its numbers spread."""
    from bitsandbytes import functional

    blocks = math.ceil(shape.numel() / BLOCK)
    scales_end = 4 * (1 + math.ceil(blocks / BLOCKS_OF_SCALE))
    codes_end = scales_end + math.ceil(shape.numel() / 2)
    raw = packed.view(torch.uint8)
    scales = raw[:scales_end].view(torch.float32)
    make: Any = functional.QuantState  # untyped there
    state = make(
        absmax=raw[codes_end : codes_end + blocks],
        shape=shape,
        dtype=dtype,
        blocksize=BLOCK,
        code=None,
        quant_type=KIND,
        offset=scales[0],
        state2=make(
            absmax=scales[1:], blocksize=BLOCKS_OF_SCALE, code=_codes_of_scales(packed.device), dtype=torch.float32
        ),
    )
    back: Any = functional.dequantize_4bit
    weight: torch.Tensor = back(raw[scales_end:codes_end].view(-1, 1), state)
    return weight


@cache
def _codes_of_scales(device: torch.device) -> torch.Tensor:
    """The 256 numbers that a block's scale can be."""
    from bitsandbytes import functional

    make: Any = functional.create_dynamic_map
    table: torch.Tensor = make().to(device)
    return table
