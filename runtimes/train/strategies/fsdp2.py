"""FSDP2: parameters, gradients and optimizer state are sharded over the ranks: a model may be larger than a device."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from runtimes.train.parallel import Ranks
from runtimes.train.strategies.base import Strategy


class Fsdp2(Strategy):
    """Every rank keeps 1/n of each tensor; a decoder block is gathered while it computes."""

    def wrap(self, model: nn.Module, ranks: Ranks, dtype: torch.dtype) -> nn.Module:
        """Shard the parameters in place: each decoder block is one unit, then the root takes the rest.

        Parameters, gradients and optimizer state stay in float32; a lower `dtype` is what the blocks compute in.
        """
        mesh = init_device_mesh(ranks.device.type, (ranks.world_size,))
        policy = MixedPrecisionPolicy(param_dtype=None if dtype == torch.float32 else dtype, reduce_dtype=torch.float32)
        for block in decoder_blocks(model):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        return model

    def clip_gradients(self, model: nn.Module, norm_max: float) -> torch.Tensor:
        """Clip by the norm over all shards; returns that norm, the same on every rank."""
        norm = super().clip_gradients(model, norm_max)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm


def decoder_blocks(model: nn.Module) -> list[nn.Module]:
    """The decoder's blocks: the module list that holds most parameters, in every causal LM of transformers."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        return []
    return list(max(lists, key=lambda blocks: sum(p.numel() for block in blocks for p in block.parameters())))
