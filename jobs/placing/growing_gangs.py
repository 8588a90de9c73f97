"""A gang that may grow, as the score sees it: what its nodes cost and do, and what is left of its training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from django.db.models import Min, Sum

from jobs.kinds.registry import kind_of
from jobs.leases import sharing
from jobs.matching.demand import Demand, flops_of
from jobs.matching.growth import GangNode, Growth, Left, growth_of, throughput_of
from jobs.matching.match import SlotTaken
from jobs.matching.score import failure_chance, startup_seconds
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Artifact, ArtifactPart, Attempt, Job, Lease, LeaseDevice
from jobs.placing.placement import request_of
from jobs.running import generations, resizing
from jobs.spec import from_wire

MEMORY_SHARE: Final = 0.9  # equal devices do not report exactly the same
FEATURE: Final = "generations.sizes"  # of an agent whose programs wait to join a gang, and go on in one of another size


class GrowingGang:
    """A gang that may grow, as the score sees it: its nodes, what they may still cost, and what is left to do."""

    def __init__(self, attempt: Attempt, resume: Artifact, snapshot: FleetSnapshot) -> None:
        self._attempt, self._snapshot = attempt, snapshot
        self._rows = {node_id: row for row, node_id in enumerate(snapshot.node_ids)}
        self.leases = list(attempt.leases.members().order_by("node_rank").prefetch_related("devices"))
        self._request = request_of(attempt.job)
        self._redo_ms = redo_ms_of(self.leases, resume)
        self._nodes = self.nodes_of_leases(self.leases)
        self.left = self._left(resume)

    @property
    def _kind(self) -> str:
        return str(self.leases[0].devices.all()[0].kind)

    @property
    def _memory_mib(self) -> int:
        """About what the smallest device of the gang has: with less a rank might not hold what the others do."""
        devices = LeaseDevice.objects.filter(lease__in=self.leases).aggregate(least=Min("device__memory_mib"))
        return int((devices["least"] or 0) * MEMORY_SHARE)

    def demand_for(self, count: int, nodes: frozenset[UUID]) -> Demand:
        """Of so many nodes more, which do their share of what is left."""
        whole, left = self._request.demand, self.left
        share = count / (len(self.leases) + count)
        return replace(
            whole,
            nodes=count,
            kind=self._kind,
            memory_mib=max(whole.memory_mib, self._memory_mib),
            cap_usd_micros=int(sharing.unspent_of(self.leases).usd_micros * share),
            work_flops=left.work_flops * share if left else None,
            seconds_left=None,  # the gang goes on in any case, and ends sooner with them
            only_nodes=nodes,
            runtime_features=whole.runtime_features | {generations.FEATURE, FEATURE},
        )

    def growth_with(self, more: Sequence[GangNode] | None) -> Growth | None:
        """What it takes to complete the training with more nodes; None where that is not worth it, or not paid."""
        if not self._nodes or not more or self.left is None:
            return None
        growth = growth_of(self._request.demand, self._kind, self._nodes, more, self.left)
        is_paid = growth is not None and growth.expected_usd_micros <= sharing.unspent_of(self.leases).usd_micros
        return growth if is_paid else None

    def nodes_of_slots(self, slots: Sequence[SlotTaken]) -> list[GangNode] | None:
        """Nodes that are free; None where one is not what it was."""
        return self._all(self._node(slot.node_id, slot.price_usd_micros, slot.device_ids) for slot in slots)

    def nodes_of_leases(self, leases: Sequence[Lease]) -> list[GangNode] | None:
        """Nodes that are leased, with their devices read before; None where one is not in the market any more."""
        return self._all(
            self._node(
                lease.node_id,
                lease.price_usd_micros_per_device_hour,
                [device.pk for device in lease.devices.all()],
                model=lease.devices.all()[0].model,
            )
            for lease in leases
        )

    @staticmethod
    def _all(found: Iterator[GangNode | None]) -> list[GangNode] | None:
        nodes = list(found)
        known = [node for node in nodes if node is not None]
        return known if len(known) == len(nodes) else None

    def _node(self, node_id: UUID, price: int, devices: Sequence[UUID], *, model: str = "") -> GangNode | None:
        row, snapshot = self._rows.get(node_id), self._snapshot
        if row is None:
            return None
        dtype = self._request.demand.dtype
        groups = [group for group in snapshot.groups[row] if group.model == model or devices[0] in group.free]
        flops = min((flops_of(group.flops_per_second, group.kind, dtype) for group in groups), default=0.0)
        if flops <= 0:
            return None
        chance = failure_chance(snapshot.failures[row], snapshot.successes[row])
        return GangNode(price, flops, startup_seconds(snapshot.executors[row]), chance)

    def _left(self, resume: Artifact) -> Left | None:
        """By the declared work; and, where it is less or none is declared, by how fast the gang has trained so far."""
        if not self._nodes or resume.step is None:
            return None
        job, known = self._attempt.job, []
        steps = [total for total in (_steps_of(job), job.progress.get("steps_total")) if total]
        seconds = _seconds_a_step(self._attempt, self.leases[0])
        if steps and seconds is not None:
            throughput = throughput_of(self._request.demand, self._kind, self._nodes)
            known.append(max(0.0, float(min(steps)) - resume.step) * seconds * throughput)
        if self._request.demand.work_flops is not None:
            known.append(self._request.demand.work_flops)
        if not known:
            return None
        fewest, _ = resizing.nodes_of(job)
        spent = job.attempts.aggregate(sum=Sum("growth_usd_micros"))["sum"] or 0
        return Left(min(known), self._redo_ms / 1000, fewest, int(spent))


def redo_ms_of(leases: Iterable[Lease], resume: Artifact) -> int:
    """What a gang of these leases would do again from that checkpoint on, by the meter of the node that says the least
    of it."""
    saved = dict(ArtifactPart.objects.filter(artifact=resume).values_list("lease_id", "billable_ms"))
    return max(max(0, lease.observed_ms - saved.get(lease.pk, 0)) for lease in leases)


def _steps_of(job: Job) -> int | None:
    return kind_of(job).spec_kind.steps(from_wire(job.spec))


def _seconds_a_step(attempt: Attempt, first: Lease) -> float | None:
    """Between the first and the newest checkpoint of the attempt's present generation, by the first node's meter; None
    where it has saved no two."""
    saved = Artifact.objects.credible().filter(attempt=attempt, generation=attempt.generation)
    parts = ArtifactPart.objects.filter(lease=first, artifact__in=saved).order_by("artifact__step")
    readings = [(step or 0, ms) for step, ms in parts.values_list("artifact__step", "billable_ms")]
    if len(readings) < 2:
        return None
    (first_step, first_ms), (last_step, last_ms) = readings[0], readings[-1]
    if last_step <= first_step or last_ms <= first_ms:
        return None
    return float((last_ms - first_ms) / 1000 / (last_step - first_step))
