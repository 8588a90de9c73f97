"""From a job file, and what became of it so far, to the matcher's demand."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from jobs.matching.demand import ISOLATIONS, UNISOLATED, Demand
from jobs.payment.terms import USD
from jobs.spec.kinds.registry import kind_of
from jobs.spec.model import Spec

DONE_SHARE_MAX = 0.99  # of a job that goes on: a little work is always left


def demand_of(
    spec: Spec,
    *,
    organisation_id: UUID | None = None,
    price_ceiling_usd_micros: int | None = None,
    cap_usd_micros: int | None = None,
    seconds_left: float | None = None,
    done_share: float = 0.0,
    avoid: Iterable[UUID] = (),
    only_nodes: frozenset[UUID] | None = None,
) -> Demand:
    """What `spec` demands, for a job of this organisation; without one it is a stranger's at every node.

    A ceiling given here binds where it is lower than the budget's; a cap in its place, as resuming may have raised it.
    For a job that goes on: `done_share` of its work is in a checkpoint, `cap_usd_micros` is what is left of its cap,
    `seconds_left` until its deadline, and nodes in `avoid` lost it before. A customer's wallet
    pays at `only_nodes`.
    """
    resources, budget = spec.resources, spec.budget
    kind = kind_of(spec)
    flops, steps = kind.flops(spec), kind.steps(spec)
    return Demand(
        devices=resources.gpus,
        nodes=resources.nodes,
        kind=None if resources.kind == "any" else resources.kind,
        models=tuple(sorted(resources.models)),
        memory_mib=resources.memory_mib,
        memory_floor_mib=kind.memory_floor_mib(spec),
        cuda=resources.cuda or (0, 0),
        compute_capability=resources.compute_capability or (0, 0),
        cpus=resources.cpus or 0,
        ram_mib=resources.ram_mib,
        disk_mib=resources.disk_mib,
        shm_mib=resources.shm_mib,
        regions=tuple(sorted(resources.region)),
        executors=("docker",) if spec.image else (),
        isolations=ISOLATIONS[resources.isolation],
        organisation_id=organisation_id if resources.isolation == UNISOLATED else None,
        needs_egress=spec.network == "public",
        lent=frozenset(spec.lent),
        needs_token_receipts=spec.payment.asset != USD,
        wallet_for=spec.payment.asset if spec.payment.mode == "escrow" else "",
        dtype=kind.dtype(spec),
        needs_serving=kind.has_endpoint,
        runtime_features=kind.runtime_features(spec),
        work_flops=None if flops is None else flops * (1 - min(max(done_share, 0.0), DONE_SHARE_MAX)),
        checkpoint_seconds=spec.checkpoint.every_seconds,
        checkpoint_share=spec.checkpoint.every_steps / steps if steps else 0.0,
        price_ceiling_usd_micros=_lower(price_ceiling_usd_micros, budget.max_per_gpu_hour_usd_micros),
        cap_usd_micros=budget.max_total_usd_micros if cap_usd_micros is None else cap_usd_micros,
        seconds_left=seconds_left if seconds_left is not None else budget.deadline_seconds,
        avoid=frozenset(avoid),
        only_nodes=only_nodes,
    )


def _lower(given: int | None, other: int | None) -> int | None:
    known = [value for value in (given, other) if value is not None]
    return min(known) if known else None
