"""FSDP2: parameters, gradients and optimizer state are sharded over the ranks: a model may be larger than a device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from runtimes.train.parallel import Ranks
from runtimes.train.strategies.base import Strategy


class Fsdp2(Strategy):
    """Every rank keeps 1/n of each tensor; a decoder block is gathered while it computes."""

    def wrap(self, units: Iterator[nn.Module], ranks: Ranks, dtype: torch.dtype) -> nn.Module:
        """Shard the parameters in place: each decoder block is one unit, then the root takes the rest.

        A block is sharded before the next one is filled: a rank holds its own part and one block. Parameters, gradients
        and optimizer state stay in float32; a lower `dtype` is what the blocks compute in.
        """
        mesh = self.mesh(ranks)
        policy = MixedPrecisionPolicy(param_dtype=None if dtype == torch.float32 else dtype, reduce_dtype=torch.float32)
        for unit in units:
            fully_shard(unit, mesh=mesh, mp_policy=policy)
        return unit

    def mesh(self, ranks: Ranks) -> DeviceMesh:
        """All ranks, in one row."""
        return init_device_mesh(ranks.device.type, (ranks.world_size,))

    def clip_gradients(self, model: nn.Module, norm_max: float) -> torch.Tensor:
        """Clip by the norm over all shards; returns that norm, the same on every rank."""
        norm = super().clip_gradients(model, norm_max)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm
