"""HSDP: the model is sharded over the ranks of a node, and each node holds it whole.

Parameters are gathered inside a node alone. Between nodes, whose links are slower, a step sends each rank's part of the
gradient once, whatever the number of micro-batches. With offloading it does so in each of them: torch would keep what a
node has added up, and the other nodes have not yet, on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from runtimes.train.parallel import Ranks
from runtimes.train.strategies.fsdp2 import Fsdp2


class Hsdp(Fsdp2):
    """Every rank keeps 1/n of each tensor, of the n ranks of its node; nodes apply the same averaged gradient."""

    def mesh(self, ranks: Ranks) -> DeviceMesh:
        """Nodes by the ranks of each."""
        shape = (ranks.nodes, ranks.world_size // ranks.nodes)
        return init_device_mesh(ranks.device.type, shape, mesh_dim_names=("replicate", "shard"))

    @contextmanager
    def accumulate(self, model: nn.Module, *, is_last: bool) -> Iterator[None]:
        """The nodes exchange gradients in the last pass alone; the passes before it add to each rank's part, or to the
        whole where there is room. Who offloads has no room on the device for either, and exchanges in every pass.
        """
        sharded: Any = model  # an FSDPModule, made by `wrap`
        with super().accumulate(model, is_last=is_last):  # which sets both exchanges, so that it comes first
            sharded.set_requires_all_reduce(is_last or sharded.souk_offloads)
            yield
