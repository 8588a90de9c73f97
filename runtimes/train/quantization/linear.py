"""Linear modules whose frozen weight is in four bits, and is made whole for each product anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from runtimes.train.model import decoder_blocks
from runtimes.train.quantization.nf4 import dequantize, quantize

PACKED = "packed"  # the parameter's name


class Nf4Linear(nn.Module):
    """Computes what a linear module with this weight and bias does; no gradient reaches either."""

    def __init__(self, weight: torch.Tensor, bias: nn.Parameter | None, *, is_transposed: bool, dtype: torch.dtype):
        """`is_transposed`: the weight is (in, out), as GPT-2 keeps its own; `dtype`: what is computed with."""
        super().__init__()
        self.shape, self.is_transposed, self.dtype = weight.shape, is_transposed, dtype
        self.in_features, self.out_features = weight.shape if is_transposed else reversed(weight.shape)
        self.packed = nn.Parameter(quantize(weight, dtype), requires_grad=False)
        self.bias = bias

    @property
    def weight(self) -> torch.Tensor:
        """The whole weight, for models that read it without calling the module."""
        return dequantize(self.packed, self.shape, self.dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(..., in) to (..., out)."""
        kind = inputs.device.type
        if torch.is_autocast_enabled(kind):
            inputs = inputs.to(torch.get_autocast_dtype(kind))
        apply: Any = _Product.apply  # untyped there
        product: torch.Tensor = apply(inputs, self.packed, self.shape, self.is_transposed)
        return product if self.bias is None else product + self.bias.to(product.dtype)


class _Product(torch.autograd.Function):
    """Keeps the packed weight alone for the backward pass, which makes it whole once more."""

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, packed: torch.Tensor, shape: torch.Size, is_transposed: bool
    ) -> torch.Tensor:
        """`inputs` (..., in)."""
        ctx.save_for_backward(packed)
        ctx.shape, ctx.is_transposed = shape, is_transposed
        weight = dequantize(packed, shape, inputs.dtype)
        return inputs @ (weight if is_transposed else weight.T)

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> Any:
        """Of the inputs alone."""
        (packed,) = ctx.saved_tensors
        weight = dequantize(packed, ctx.shape, outer[0].dtype)
        return outer[0] @ (weight.T if ctx.is_transposed else weight), None, None, None


def quantized_units(
    units: Iterator[nn.Module], model: nn.Module, *, device: torch.device, dtype: torch.dtype
) -> Iterator[nn.Module]:
    """The same units; in each decoder block every linear module that is frozen has its weight in four bits.

    A block is quantized, on `device`, before the next one is filled. `dtype`: what the training computes in. Embeddings
    and head stay as they are. Raises BadData for weights that are not finite.
    """
    blocks = set(decoder_blocks(model))
    for unit in units:
        if unit in blocks:
            _quantize_block(unit, device, dtype)
        yield unit


def is_packed(name: str) -> bool:
    """Whether a parameter of this name holds bytes that are no numbers of its dtype."""
    return name.endswith(f".{PACKED}")


def _quantize_block(block: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    from transformers.pytorch_utils import Conv1D

    for parent in list(block.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear | Conv1D) and not child.weight.requires_grad:
                weight = child.weight.detach().to(device, dtype)
                is_transposed = isinstance(child, Conv1D)
                setattr(parent, name, Nf4Linear(weight, child.bias, is_transposed=is_transposed, dtype=dtype))
