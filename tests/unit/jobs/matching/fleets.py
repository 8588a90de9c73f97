"""Fleets for the matcher's tests: plain ones by hand, strange ones by hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from jobs.matching.demand import Demand
from jobs.matching.snapshot import DeviceGroup, FleetSnapshot, NodeRow, snapshot_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODELS = {"NVIDIA H100 80GB HBM3": 81_920, "NVIDIA GeForce RTX 4090": 24_576, "NVIDIA A100-SXM4-40GB": 40_960}
WEEK = 7 * 24 * 3600.0
ORGANISATIONS = (UUID(int=1 << 70), UUID(int=2 << 70))


def gpus(total: int = 1, *, free: int | None = None, first: int = 0, **fields: Any) -> DeviceGroup:
    """A group of equal GPUs whose ids start at `first`."""
    free = total if free is None else free
    given = {
        "kind": "gpu",
        "model": "NVIDIA H100 80GB HBM3",
        "memory_mib": 81_920,
        "flops_per_second": {"float32": 50e12, "bfloat16": 400e12},
        **fields,
    }
    return DeviceGroup(total=total, free=tuple(UUID(int=(1 << 64) + first + i) for i in range(free)), **given)


def node(number: int, *, groups: Sequence[DeviceGroup] | None = None, **fields: Any) -> NodeRow:
    """An online, measured node with one free H100 at $2 an hour, unless arguments change it."""
    given = {
        "node_id": UUID(int=number),
        "name": f"node-{number}",
        "state": "online",
        "provider_id": UUID(int=1000 + number),
        "offer_id": UUID(int=2000 + number),
        "price_usd_micros": 2_000_000,
        "seconds_min": 60,
        "seconds_max": WEEK,
        "region": "eu-west",
        "fabric": "",
        "executor": "docker",
        "isolation": "runc",
        "is_measured": True,
        "failures": 0,
        "successes": 0,
        "groups": tuple(groups) if groups is not None else (gpus(first=number * 100),),
        **fields,
    }
    return NodeRow(**given)


def fleet(*rows: NodeRow) -> FleetSnapshot:
    return snapshot_of(rows, taken_at=NOW)


def demand(**fields: Any) -> Demand:
    """One GPU for a job of 1e18 FLOPs and at most $1000, unless arguments change it."""
    return Demand(**{"devices": 1, "kind": "gpu", "work_flops": 1e18, "cap_usd_micros": 10**9, **fields})


@st.composite
def groups_of_devices(draw: st.DrawFn, number: int, position: int) -> DeviceGroup:
    total = draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["gpu", "gpu", "gpu", "cpu"]))
    model = draw(st.sampled_from(sorted(MODELS))) if kind == "gpu" else "Intel Xeon"
    measured = {"float32": draw(st.floats(1e10, 1e14))}
    if kind == "gpu" and draw(st.booleans()):
        measured["bfloat16"] = measured["float32"] * 8
    return gpus(
        total,
        free=draw(st.integers(0, total)),
        first=number * 100 + position * 10,
        kind=kind,
        model=model,
        memory_mib=MODELS.get(model, 4096),
        flops_per_second=draw(st.sampled_from([measured, measured, measured, {}])),
    )


@st.composite
def node_rows(draw: st.DrawFn, number: int) -> NodeRow:
    has_offer = draw(st.integers(0, 9)) > 0
    return node(
        number,
        state=draw(st.sampled_from(["online"] * 6 + ["offline", "draining", "quarantined", "pending", "silent"])),
        is_measured=draw(st.integers(0, 9)) > 0,
        offer_id=UUID(int=2000 + number) if has_offer else None,
        price_usd_micros=draw(st.integers(10_000, 4_000_000)) if has_offer else 0,
        seconds_min=draw(st.sampled_from([0, 60, 3600])),
        seconds_max=draw(st.sampled_from([600.0, 36_000.0, WEEK])),
        region=draw(st.sampled_from(["eu-west", "us-east"])),
        fabric=draw(st.sampled_from(["", "rack-1", "rack-2"])),
        executor=draw(st.sampled_from(["docker", "process"])),
        isolation=draw(st.sampled_from(["none", "runc", "gvisor"])),
        organisation_id=draw(st.sampled_from(ORGANISATIONS)),
        allows_strangers=draw(st.booleans()),
        has_egress=draw(st.booleans()),
        lent=draw(st.frozensets(st.sampled_from(["corpus", "images"]))),
        failures=draw(st.integers(0, 5)),
        successes=draw(st.integers(0, 50)),
        groups=[draw(groups_of_devices(number, position)) for position in range(draw(st.integers(0, 2)))],
    )


@st.composite
def fleets(draw: st.DrawFn, nodes_max: int = 10) -> list[NodeRow]:
    return [draw(node_rows(number)) for number in range(1, draw(st.integers(0, nodes_max)) + 1)]


def demands() -> st.SearchStrategy[Demand]:
    return st.builds(
        Demand,
        devices=st.integers(1, 4),
        nodes=st.sampled_from([1, 1, 1, 2, 3]),
        kind=st.sampled_from(["gpu", "gpu", "cpu", None]),
        models=st.sampled_from([(), (), (), ("H100",), ("RTX 4090", "A100")]),
        memory_mib=st.sampled_from([0, 0, 24_000, 80_000]),
        regions=st.sampled_from([(), (), ("eu-west",), ("asia-south",)]),
        executors=st.sampled_from([(), (), ("docker",)]),
        isolations=st.sampled_from([(), (), ("runc", "gvisor"), ("gvisor",)]),
        organisation_id=st.sampled_from([None, *ORGANISATIONS]),
        needs_egress=st.sampled_from([False, False, True]),
        lent=st.sampled_from([frozenset(), frozenset(), frozenset({"corpus"}), frozenset({"corpus", "images"})]),
        dtype=st.sampled_from(["auto", "auto", "float32", "bfloat16"]),
        work_flops=st.one_of(st.none(), st.floats(1e12, 1e19)),
        checkpoint_seconds=st.sampled_from([0, 300]),
        checkpoint_share=st.sampled_from([0.0, 0.1]),
        price_ceiling_usd_micros=st.one_of(st.none(), st.integers(10_000, 4_000_000)),
        cap_usd_micros=st.one_of(st.none(), st.integers(1000, 10**9)),
        seconds_left=st.one_of(st.none(), st.floats(60, 1e6)),
        avoid=st.sampled_from([frozenset(), frozenset({UUID(int=1), UUID(int=2)})]),
    )
