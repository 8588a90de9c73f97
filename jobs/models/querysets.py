"""Queries of jobs, attempts, leases and artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Exists, OuterRef, Q, Window
from django.db.models.functions import RowNumber

from billing.models import EscrowHold
from billing.states.chain import EscrowHoldState
from jobs.spec.kinds.registry import placed_whole
from jobs.states import ATTEMPT_LIVE, JOB_ENDS, JOB_WAITING, LEASE_LIVE, ArtifactState
from marketplace.foundation import clock

if TYPE_CHECKING:
    from jobs.models import Artifact, Attempt, Job, Lease  # noqa: F401 - names of the generic parameters


class JobQuerySet(models.QuerySet["Job"]):
    def of(self, organisation: Any) -> JobQuerySet:
        """Jobs that this organisation pays for."""
        return self.filter(organisation=organisation)

    def unfinished(self) -> JobQuerySet:
        """Jobs that have not ended."""
        return self.exclude(state__in=JOB_ENDS)

    def waiting(self) -> JobQuerySet:
        """Jobs that want to be placed: by priority, then first come."""
        return self.filter(state__in=JOB_WAITING, cancel_requested_at=None).order_by("-priority", "queued_at", "id")

    def placeable(self) -> JobQuerySet:
        """Of those that wait the ones that may have leases: no price halts them, a contract's hold is open, and they
        are not set aside. Within a priority organisations take turns, each with its oldest job first."""
        jobs = self.waiting().filter(kind__in=placed_whole())  # an endpoint's replicas are placed by jobs/serving
        jobs = jobs.filter(Q(payment_mode="credits") | Exists(_open_in_contract()), price_halt=None)
        jobs = jobs.filter(Q(skipped_until=None) | Q(skipped_until__lte=clock.now()), unfunded_units=None)
        turn = Window(RowNumber(), partition_by=["organisation_id", "priority"], order_by=["queued_at", "id"])
        return jobs.annotate(turn=turn).order_by("-priority", "turn", "queued_at", "id")

    def uncovered(self) -> JobQuerySet:
        """Of those that wait the ones whose hold in the contract is not open yet, or never will be."""
        return self.waiting().filter(~Exists(_open_in_contract()), payment_mode="escrow")


def _open_in_contract() -> models.QuerySet[EscrowHold]:
    return EscrowHold.objects.filter(pk=OuterRef("pk"), state=EscrowHoldState.OPEN)


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def live(self) -> AttemptQuerySet:
        """Attempts that have not ended."""
        return self.filter(state__in=ATTEMPT_LIVE)


class LeaseQuerySet(models.QuerySet["Lease"]):
    def live(self) -> LeaseQuerySet:
        """Leases that hold their devices."""
        return self.filter(state__in=LEASE_LIVE)

    def members(self) -> LeaseQuerySet:
        """Live leases of which gangs consist: not those that wait to join one, which grows."""
        return self.live().filter(is_joining=False)

    def joining(self) -> LeaseQuerySet:
        """Live leases that wait to join their attempt's gang."""
        return self.live().filter(is_joining=True)


class ArtifactQuerySet(models.QuerySet["Artifact"]):
    def complete(self) -> ArtifactQuerySet:
        """Artifacts whose every byte is there."""
        return self.filter(state=ArtifactState.COMPLETE)

    def resumable(self, job: Any) -> ArtifactQuerySet:
        """Complete checkpoints of a job, the furthest first.

        By attempts, whose order the marketplace knows, and by steps, which are a node's word, only within one.
        """
        found = self.complete().filter(job=job, kind="checkpoint", condemned_at=None)
        return found.order_by("-attempt__number", "-step", "-completed_at")

    def credible(self) -> ArtifactQuerySet:
        """Checkpoints that count: for their node's pay, and as a sign that it went on from the one before.

        Not what was condemned, nor what was pruned of the same attempt: nobody can try that any more.
        """
        condemned = self.model.objects.filter(attempt=OuterRef("attempt"), condemned_at__isnull=False)
        pruned = Q(state=ArtifactState.DELETED) & ~Exists(condemned)
        return self.filter(Q(state=ArtifactState.COMPLETE) | pruned, kind="checkpoint", condemned_at=None)

    def stays_complete(self, artifact: Any) -> bool:
        """Whether this one is complete, and will not be pruned before the caller's transaction ends."""
        found = self.filter(pk=artifact.pk).select_for_update(of=("self",), no_key=True)
        return found.values_list("state", flat=True).first() == ArtifactState.COMPLETE
