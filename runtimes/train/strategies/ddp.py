"""DDP: every rank holds the whole model and computes its part of each batch; the gradients are averaged.

For models that fit on one device together with their gradients and optimizer state, 16 bytes a parameter in float32.
A step then sends each gradient once, where FSDP2 also gathers the parameters in every pass.

Limit: every parameter must take part in every step, or torch raises an error. Mixture-of-experts models, whose experts
may be idle in a step, need FSDP2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runtimes.train.errors import BadConfig
from runtimes.train.parallel import Ranks
from runtimes.train.strategies.base import Strategy


class Ddp(Strategy):
    """Replicas that apply the same averaged gradient, and so stay the same."""

    def wrap(
        self, units: Iterator[nn.Module], ranks: Ranks, dtype: torch.dtype, *, offloads: bool = False
    ) -> nn.Module:
        """Move the model to the device and average its gradients there; a lower `dtype` computes by autocast.

        Raises BadConfig for `offloads`: the whole model stays on the device.
        """
        if offloads:
            raise BadConfig(["offload needs strategy fsdp2 or hsdp, got ddp"])
        for unit in units:
            model = unit.to(ranks.device)
        if dtype != torch.float32:
            computing: Any = torch.autocast(ranks.device.type, dtype=dtype)
            untyped: Any = model
            untyped.forward = computing(untyped.forward)
        return DistributedDataParallel(
            model,
            broadcast_buffers=False,  # a decoder's buffers are constants, and were made the same on every rank
            gradient_as_bucket_view=True,  # no second copy of the gradients
        )

    @contextmanager
    def accumulate(self, model: nn.Module, *, is_last: bool) -> Iterator[None]:
        """The ranks exchange gradients in the last pass alone; the passes before it only add to them."""
        wrapped: Any = model  # a DistributedDataParallel, made by `wrap`
        with nullcontext() if is_last else wrapped.no_sync():
            yield
