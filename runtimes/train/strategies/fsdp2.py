"""FSDP2: parameters, gradients and optimizer state are sharded over the ranks: a model may be larger than a device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from runtimes.train.parallel import Ranks, gather_results
from runtimes.train.strategies.base import Strategy

MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of the container, as it sees itself
WHOLE_GRADIENTS_SHARE = 0.1  # of the device's memory; of the machine's, divided by its ranks


class Fsdp2(Strategy):
    """Every rank keeps 1/n of each tensor; a decoder block is gathered while it computes."""

    def wrap(
        self, units: Iterator[nn.Module], ranks: Ranks, dtype: torch.dtype, *, offloads: bool = False
    ) -> nn.Module:
        """Shard the parameters in place: each decoder block is one unit, then the root takes the rest.

        A block is sharded before the next one is filled: a rank holds its own part and one block. Parameters, gradients
        and optimizer state stay in float32; a lower `dtype` is what the blocks compute in. `offloads`: its parts lie
        in pinned memory of the node, and AdamW steps there, on the processor.
        """
        mesh = self.mesh(ranks)
        policy = MixedPrecisionPolicy(param_dtype=None if dtype == torch.float32 else dtype, reduce_dtype=torch.float32)
        # Only the driver of a GPU can pin memory; on processors nothing is moved, and offloading changes nothing.
        is_pinned = ranks.device.type == "cuda"
        where = CPUOffloadPolicy(pin_memory=is_pinned) if offloads else OffloadPolicy()
        for unit in units:
            fully_shard(unit, mesh=mesh, mp_policy=policy, offload_policy=where)
        # All ranks decide alike, or one would wait for an exchange that another leaves out. Who offloads has no room.
        rooms = gather_results(ranks, lambda: not offloads and _has_room_for_whole_gradients(unit))
        sharded: Any = unit
        sharded.souk_has_room, sharded.souk_offloads = all(rooms), offloads
        return unit

    def mesh(self, ranks: Ranks) -> DeviceMesh:
        """All ranks, in one row."""
        return init_device_mesh(ranks.device.type, (ranks.world_size,))

    @contextmanager
    def accumulate(self, model: nn.Module, *, is_last: bool) -> Iterator[None]:
        """The ranks exchange gradients in the last pass alone, where there is room for whole ones until then."""
        sharded: Any = model  # an FSDPModule, made by `wrap`
        sharded.set_requires_gradient_sync(is_last or not sharded.souk_has_room)
        yield

    def drop_gathered(self, model: nn.Module) -> None:
        """A forward pass without a backward one leaves tables and head gathered, for the next pass to use."""
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def clip_gradients(self, model: nn.Module, norm_max: float) -> torch.Tensor:
        """Clip by the norm over all shards; returns that norm, the same on every rank."""
        norm = super().clip_gradients(model, norm_max)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _has_room_for_whole_gradients(model: nn.Module) -> bool:
    """Whether the gradients of all ranks' parts, in float32, are little beside this rank's memory."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    size = sum(parameter.numel() for parameter in trained) * 4  # of a sharded one `numel` is the whole's
    if trained and trained[0].is_cuda:
        memory = torch.cuda.get_device_properties(trained[0].device).total_memory
    else:
        memory = _memory_here() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return bool(size <= WHOLE_GRADIENTS_SHARE * memory)


def _memory_here() -> int:
    """Bytes that all ranks of this machine may take: the machine's, or the container's limit where it is lower."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(memory, int(MEMORY_LIMIT.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return memory
