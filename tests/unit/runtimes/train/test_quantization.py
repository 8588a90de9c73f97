"""Weights in four bits: what they come back as, and that a module computes with that and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from runtimes.train.errors import BadData

pytest.importorskip("bitsandbytes")

from bitsandbytes import functional

from runtimes.train.quantization.linear import Nf4Linear
from runtimes.train.quantization.nf4 import dequantize, quantize

SHAPES = [(64, 64), (48, 33), (7, 5), (300, 128)]  # whole blocks, a part of one, less than one, many scales
DTYPES = [torch.float32, torch.bfloat16]


def weight_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_weight_comes_back_as_bitsandbytes_brings_it(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight = weight_of(shape, dtype)
    make: Any = functional.quantize_4bit
    codes, state = make(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
    found = dequantize(quantize(weight, dtype), weight.shape, dtype)
    assert found.shape == weight.shape
    assert torch.equal(found, functional.dequantize_4bit(codes, state))
    assert 0.01 < float((found - weight).abs().mean()) < 0.1


def test_weight_takes_little_more_than_four_bits_a_number() -> None:
    packed = quantize(weight_of((512, 512), torch.bfloat16), torch.bfloat16)
    assert 4.1 < 8 * packed.numel() * packed.element_size() / 512**2 < 4.15


@pytest.mark.parametrize("is_transposed", [False, True])
def test_module_computes_with_the_weight_that_comes_back(is_transposed: bool) -> None:
    plain: Any = Conv1D(24, 40) if is_transposed else nn.Linear(40, 24)
    nn.init.normal_(plain.bias)
    made = Nf4Linear(plain.weight.detach(), plain.bias, is_transposed=is_transposed, dtype=torch.float32)
    assert (made.in_features, made.out_features) == (40, 24)
    with torch.no_grad():
        plain.weight.copy_(made.weight)
    inputs = torch.randn(3, 5, 40)
    one, two = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    outer = torch.randn(3, 5, 24)
    (made(one) * outer).sum().backward()
    (plain(two) * outer).sum().backward()
    torch.testing.assert_close(made(one), plain(two))
    torch.testing.assert_close(one.grad, two.grad)
    assert made.packed.grad is None


def test_module_computes_in_what_autocast_says() -> None:
    made = Nf4Linear(weight_of((24, 40), torch.bfloat16), None, is_transposed=False, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert made(torch.randn(2, 40)).dtype == torch.bfloat16


def test_weight_that_is_not_finite_is_refused() -> None:
    weight = weight_of((64, 64))
    weight[5, 7] = float("nan")
    with pytest.raises(BadData, match="not finite"):
        quantize(weight, torch.float32)
