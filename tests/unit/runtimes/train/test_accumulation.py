"""Which exchanges a micro-batch makes under FSDP2 and HSDP, by torch's own flags; one process, one rank."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from runtimes.train.strategies import fsdp2
from runtimes.train.strategies.fsdp2 import Fsdp2
from runtimes.train.strategies.hsdp import Hsdp


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    untyped: Any = dist
    dist.init_process_group("gloo", store=untyped.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(strategy: Fsdp2, *, share: float, monkeypatch: pytest.MonkeyPatch, offloads: bool = False) -> Any:
    monkeypatch.setattr(fsdp2, "WHOLE_GRADIENTS_SHARE", share)
    ranks: Any = SimpleNamespace(
        device=torch.device("cpu"), world_size=1, nodes=1, control=dist.group.WORLD, rank=0, is_leader=True
    )
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    return strategy.wrap(iter([model[0], model]), ranks, torch.float32, offloads=offloads)


def exchanges(strategy: Fsdp2, model: Any, passes: int) -> list[tuple[bool, bool]]:
    """Of each pass: whether the ranks of a node exchange gradients, and the nodes."""
    found = []
    for number in range(1, passes + 1):
        with strategy.accumulate(model, is_last=number == passes):
            group = model._get_fsdp_state()._fsdp_param_group
            found.append((group.reduce_grads, group.all_reduce_grads))
            model(torch.ones(2, 4)).sum().backward()
    return found


def test_one_exchange_a_step_where_whole_gradients_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for strategy in (Fsdp2(), Hsdp()):
        model = wrapped(strategy, share=0.1, monkeypatch=monkeypatch)
        assert exchanges(strategy, model, 3) == [(False, False), (False, False), (True, True)]


def test_without_room_a_nodes_ranks_exchange_each_time_and_nodes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wrapped(Hsdp(), share=0.0, monkeypatch=monkeypatch)
    assert exchanges(Hsdp(), model, 3) == [(True, False), (True, False), (True, True)]


def test_who_offloads_keeps_no_gradient_on_the_device_between_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wrapped(Hsdp(), share=0.1, monkeypatch=monkeypatch, offloads=True)
    assert exchanges(Hsdp(), model, 3) == [(True, True)] * 3
    assert model._get_fsdp_state()._fsdp_param_group._partial_reduce_output is None


def test_one_rank_without_room_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsdp2, "gather_results", lambda ranks, work: [work(), False])
    assert wrapped(Fsdp2(), share=0.1, monkeypatch=monkeypatch).souk_has_room is False


def test_a_containers_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(fsdp2, "MEMORY_LIMIT", limit)
    whole = fsdp2._memory_here()
    limit.write_text("max\n")
    assert fsdp2._memory_here() == whole
    limit.write_text("1000000\n")
    assert fsdp2._memory_here() == 1_000_000
