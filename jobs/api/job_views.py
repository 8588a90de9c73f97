"""Jobs and artifacts as the public API shows them, in a fixed number of queries however many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from django.conf import settings

from jobs.artifacts import charges, quotas
from jobs.artifacts.downloads import remote_files
from jobs.bills.price_views import list_prices, show_change
from jobs.escrow.views import show_hold
from jobs.models import Artifact, Attempt, FollowingEvaluation, Job, Lease, StorageCharge
from jobs.pricing.costs import NO_CLAIM, Claim, cost_of, newest_claims, total_of
from jobs.spec.units import parse_money
from jobs.states import JOB_ENDS, LEASE_LIVE, ArtifactState
from jobs.wire import ArtifactView, AttemptView, EvaluationView, GenerationView, JobView, LeaseView, StorageView
from marketplace.foundation.models import Event

GENERATIONS_SHOWN_MAX = 100  # of a job
ATTEMPTS_MAX = 100  # shown with a job, the newest; an endpoint that is years old had thousands


def list_jobs(jobs: Sequence[Job]) -> list[JobView]:
    """Jobs as lists have them: with their cost, without attempts and spec."""
    leases: defaultdict[UUID, list[Lease]] = defaultdict(list)
    for lease in Lease.objects.filter(attempt__job__in=jobs).select_related("attempt"):
        leases[lease.attempt.job_id].append(lease)
    claims = newest_claims([lease.id for of_job in leases.values() for lease in of_job])
    return [_show_job(job, cost_usd_micros=total_of(leases[job.id], claims)) for job in jobs]


def show_job(job: Job) -> JobView:
    """One job with everything: its newest attempts with their leases, and its spec."""
    all_of_them = job.attempts.select_related("resume_artifact").prefetch_related("leases__node", "leases__devices")
    attempts = sorted(all_of_them.order_by("-number")[:ATTEMPTS_MAX], key=lambda attempt: attempt.number)
    generations = _generations([attempt.pk for attempt in attempts if attempt.generation])
    leases = list(Lease.objects.filter(attempt__job=job))
    claims = newest_claims([lease.id for lease in leases])
    view = _show_job(job, cost_usd_micros=total_of(leases, claims))
    return view.model_copy(
        update={
            "attempts": [_show_attempt(attempt, claims, generations[attempt.pk]) for attempt in attempts],
            "spec": job.spec,
            "escrow": show_hold(job.id) if job.is_escrow else None,
            "prices": list_prices(job),
            "price_change": show_change(job),
            "evaluation": _show_evaluation(job),
            "evaluated_job_id": FollowingEvaluation.objects.filter(job=job)
            .values_list("training_id", flat=True)
            .first(),
        }
    )


def list_artifacts(artifacts: Iterable[Artifact]) -> list[ArtifactView]:
    """Artifacts without the addresses of their files."""
    return [_show_artifact(artifact) for artifact in artifacts]


def show_artifact(artifact: Artifact, *, is_damaged: bool = False) -> ArtifactView:
    """One artifact; when it is complete, with an address for each file, which expires.

    `is_damaged`: the reader got other bytes than announced from the addresses before.
    """
    view = _show_artifact(artifact)
    if artifact.state != ArtifactState.COMPLETE:
        return view
    return view.model_copy(update={"files": remote_files(artifact, is_damaged=is_damaged)})


def show_storage(organisation_id: UUID) -> StorageView:
    """What an organisation keeps in the store, and what that costs."""
    newest = StorageCharge.objects.filter(organisation_id=organisation_id).order_by("-day").first()
    return StorageView(
        kept_bytes=quotas.kept_bytes(organisation_id),
        allowed_bytes=quotas.allowed_bytes(organisation_id),
        free_bytes=charges.free_bytes(),
        usd_micros_per_gib_month=charges.price(),
        output_kept_days=settings.SOUK_OUTPUT_KEPT_DAYS,
        charged_day=newest.day if newest else None,
        due_usd_micros=newest.due_usd_micros if newest else None,
        is_paid=newest.is_paid if newest else None,
    )


def _show_job(job: Job, *, cost_usd_micros: int) -> JobView:
    return JobView(
        job_id=job.id,
        name=job.name,
        kind=job.kind,
        state=job.state,
        reason=job.reason,
        message=job.message,
        waiting_for=job.waiting_for,
        is_cancelling=job.cancel_requested_at is not None and job.state not in JOB_ENDS,
        progress=job.progress,
        cost_so_far_usd_micros=cost_usd_micros,
        cap_usd_micros=job.cap_usd_micros,
        asset=job.asset_code,
        payment_mode=job.payment_mode,
        created_at=job.created_at,
        running_at=job.running_at,
        ended_at=job.ended_at,
    )


def _show_evaluation(job: Job) -> EvaluationView | None:
    asked = job.spec.get("evaluation")
    if asked is None:
        return None
    cap = parse_money(asked["budget"]["max_total"])
    following = FollowingEvaluation.objects.filter(training=job).first()
    if following is None:
        return EvaluationView(state="none" if job.state in JOB_ENDS else "planned", cap_usd_micros=cap)
    return EvaluationView(
        state="launched" if following.job_id else "due" if following.next_try_at else "given_up",
        job_id=following.job_id,
        cap_usd_micros=cap,
        tries=following.tries,
        next_try_at=following.next_try_at,
        message=following.why_not,
    )


def _generations(attempt_ids: Collection[UUID]) -> defaultdict[UUID, list[GenerationView]]:
    """Of each attempt, the oldest first."""
    found: defaultdict[UUID, list[GenerationView]] = defaultdict(list)
    if not attempt_ids:
        return found
    events = Event.objects.filter(subject_kind="attempt", subject_id__in=attempt_ids, data__has_key="generation")
    for event in reversed(events.order_by("-id")[:GENERATIONS_SHOWN_MAX]):
        data = event.data
        found[event.subject_id].append(
            GenerationView(
                number=data["generation"],
                at=event.created_at,
                reason=event.reason,
                resumed_step=data["resumed_step"],
                grown_to=data.get("grown_to"),
                shrunk_to=data.get("shrunk_to"),
            )
        )
    return found


def _show_attempt(attempt: Attempt, claims: Mapping[UUID, Claim], generations: list[GenerationView]) -> AttemptView:
    leases = sorted(attempt.leases.all(), key=lambda lease: (lease.node_rank, lease.reserved_at))
    return AttemptView(
        attempt_id=attempt.id,
        number=attempt.number,
        state=attempt.state,
        reason=attempt.reason,
        fault=attempt.fault,
        message=attempt.message,
        exit_code=attempt.exit_code,
        resumed_from_step=attempt.resume_artifact.step if attempt.resume_artifact else None,
        created_at=attempt.created_at,
        running_at=attempt.running_at,
        ended_at=attempt.ended_at,
        leases=[_show_lease(lease, claims.get(lease.id, NO_CLAIM)) for lease in leases],
        generations=generations,
    )


def _show_lease(lease: Lease, claim: Claim) -> LeaseView:
    cost = cost_of(lease, claim)
    return LeaseView(
        lease_id=lease.id,
        node_id=lease.node_id,
        node_name=lease.node.name,
        node_rank=lease.node_rank,
        state=lease.state,
        devices=lease.device_count,
        device_model=" + ".join(sorted({device.model for device in lease.devices.all()})),
        rate_usd_micros_per_hour=lease.rate_usd_micros_per_hour,
        billable_ms=cost.billable_ms,
        charge_usd_micros=cost.charge_usd_micros,
        asset=lease.payment.get("asset", "USD"),
        rate_units_per_hour=lease.rate_units_per_hour,
        charge_units=cost.charge_units,
        is_joining=lease.is_joining and lease.state in LEASE_LIVE,
    )


def _show_artifact(artifact: Artifact) -> ArtifactView:
    return ArtifactView(
        artifact_id=artifact.id,
        job_id=artifact.job_id,
        kind=artifact.kind,
        step=artifact.step,
        state=artifact.state,
        size_bytes=artifact.size_bytes,
        file_count=sum(len(part.files) for part in artifact.parts.all()),
        created_at=artifact.created_at,
        completed_at=artifact.completed_at,
        condemned_at=artifact.condemned_at,
        kept_until=artifact.goes_at,
    )
