"""The story of a job. Read this first.

    1  submit            a signed quote becomes a job: QUEUED                                     (here)
    2  place_job         hold, leases, attempt in one transaction: PLACED                         (placement.py)
    3  desired_state     the nodes' next sync tells them to run it                                (assignments.py)
    4  apply_reports     the agents say that it is preparing, then running: RUNNING               (reports.py)
    5  finish_attempt    the agents say that it ended, or a sweep says that they fell silent:     (here)
                         the reasons table decides: completed, tried again, paused, failed
    6  end_job           the hold is captured, providers are paid, the rest goes back             (here)

`cancel`, `resume` and `resubmit` are what people may do in between. Every verb locks the job's row first, so that two
of them never work on one job at a time; rows below it are locked after it, never before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F

from billing import holds, limits, promotions, settlement
from billing.balances import balance
from billing.kinds import AccountKind
from jobs import escrow, leasing, quotes
from jobs.costs import charged_of
from jobs.errors import (
    CapTooLow,
    HoldCannotGrow,
    InputNotReady,
    JobEnded,
    JobNotEnded,
    JobNotFound,
    JobNotPaused,
    NoFit,
    NotEnoughMoney,
    SecretsGone,
)
from jobs.models import Artifact, Attempt, Job, Lease, PriceHalt
from jobs.payment import Payment
from jobs.price_locks import price_of, spent_usd_micros
from jobs.serving import endpoints, payments, replicas
from jobs.spec import Spec, canonical, from_wire
from jobs.states import JOB_ENDS, JOB_WAITING, ArtifactState, JobState
from jobs.sync.wake import wake_nodes
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock, signing
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.models import Node
from provider_agent.protocol import REASONS, AttemptState, Fault, Outcome, Reason, SignedHoldAuthorization

SECRETS_BYTES_MAX = 64 * 1024


def submit(
    *,
    organisation: Organisation,
    user: User | None,
    spec: Spec,
    quote_id: UUID,
    input_artifact: Artifact | None = None,
    secrets: Mapping[str, str] | None = None,
    authorization: SignedHoldAuthorization | None = None,
) -> Job:
    """Turn a quote into a queued job, once; nothing is charged before it is placed.

    In escrow mode with the hold that the customer's wallet signed for it, which the contract opens before it is placed.

    Raises QuoteExpired, QuoteMismatch, QuoteUsed, SpendLimitReached; NotEnoughMoney says how much is missing; what
    `escrow.check` does.
    """
    with transaction.atomic():
        quote = quotes.verify_quote(quote_id, organisation=organisation, spec=spec)
        input_artifact = endpoints.weights_of(organisation, spec) or input_artifact
        if input_artifact is not None and input_artifact.state != ArtifactState.COMPLETE:
            raise InputNotReady(artifact_id=str(input_artifact.pk))
        escrow.check(quote, spec, authorization)
        if spec.serve is not None:
            payments.require_window(organisation, quote, spec)
        elif authorization is None:
            units = quote.payment.units_up(quote.cap_usd_micros)
            require_money(organisation, quote.asset_id, quote.payment, units, cap=quote.cap_usd_micros)
        sealed = json.dumps(dict(secrets or {}))
        if len(sealed) > SECRETS_BYTES_MAX:
            raise BadRequest(f"The job's secrets take {len(sealed)} bytes; at most {SECRETS_BYTES_MAX} are kept.")
        now = clock.now()
        job = Job.objects.create(
            id=quote.id if authorization else new_id(),  # in escrow mode the wallet signed for it beforehand
            organisation=organisation,
            submitted_by=user,
            quote=quote,
            name=spec.name,
            kind=spec.kind,
            spec=canonical(spec),
            spec_hash=quote.spec_hash,
            sealed_secrets=signing.encrypt_secret(sealed) if secrets else "",
            input_artifact=input_artifact,
            price_ceiling_usd_micros=quote.price_ceiling_usd_micros,
            cap_usd_micros=quote.cap_usd_micros,
            attempts_max=spec.retry.max_attempts,
            payment_mode=spec.payment.mode,
            waiting_for=escrow.waits_for(None) if authorization else "",
            deadline_at=_deadline(spec, authorization),
            queued_at=now,
        )
        if authorization is not None:
            escrow.hold(quote, authorization)
        limits.commit(
            job_id=job.id, owner_id=organisation.id, member_id=user.pk if user else None, amount=job.cap_usd_micros
        )
        record_birth(job, actor=str(user or "system"), data={"quote": str(quote.id)})
        if spec.serve is not None:
            endpoints.open_endpoint(job, spec)
    return job


def cancel(job_id: UUID, *, actor: str, reason: Reason = Reason.CANCELLED_BY_CUSTOMER) -> Job:
    """Stop a job in whatever state it is; on nodes it is told to save and leave, and ends when it has.

    Cancelling twice is harmless; a job that has ended raises JobEnded.
    """
    with transaction.atomic():
        job = lock(job_id)
        if job.state in JOB_ENDS:
            if job.state == JobState.CANCELLED:
                return job
            raise JobEnded(state=job.state)
        if job.cancel_requested_at is None:
            job.cancel_requested_at, job.cancel_reason = clock.now(), reason.value
            job.save(update_fields=["cancel_requested_at", "cancel_reason"])
        if not job.attempts.live().exists():
            return end_job(job, JobState.CANCELLED, reason, actor=actor)
        stop_leases(Lease.objects.live().filter(attempt__job=job), reason)
    return job


def resume(job_id: UUID, *, cap_usd_micros: int, actor: str) -> Job:
    """Raise a job's cap; a paused one goes back into the queue, and on from its newest checkpoint.

    A job that waits because the rest of its cap no longer covers the rest of its work is helped the same way. Raises
    JobNotPaused for any other, CapTooLow, NotEnoughMoney.
    """
    with transaction.atomic():
        job = lock(job_id)
        if job.state != JobState.PAUSED and job.state not in JOB_WAITING:
            raise JobNotPaused(state=job.state)
        is_serving = job.kind == "serve"  # its window moves on with the money that is there: the cap may stay
        if cap_usd_micros < job.cap_usd_micros or (cap_usd_micros == job.cap_usd_micros and not is_serving):
            raise CapTooLow(cap_usd_micros=cap_usd_micros, present_usd_micros=job.cap_usd_micros)
        is_held = holds.is_open(job.id)
        if job.is_escrow:
            raise HoldCannotGrow(what="This job cannot be resumed with more", how="with a larger budget.max_total")
        price = price_of(job)
        # At the price that is locked, rounded as a whole: what is held is the new cap's, to the unit.
        more = price.units_due(cap_usd_micros) - (price.units_due(job.cap_usd_micros) if is_held else 0)
        if not is_serving:
            require_money(job.organisation, job.quote.asset_id, price.payment, more, cap=cap_usd_micros)
        if cap_usd_micros > job.cap_usd_micros:
            limits.enlarge(job.id, amount=cap_usd_micros)
        if job.state == JobState.PAUSED:
            advance(job, JobState.QUEUED, reason="resumed", actor=actor, queued_at=clock.now())
        job.cap_usd_micros = cap_usd_micros
        job.save(update_fields=["cap_usd_micros"])
        if is_serving:
            payments.resume_window(job)
        elif is_held and more:
            promotions.draw(job.organisation_id, job.id, more, asset_id=job.quote.asset_id)
            holds.extend_hold(job.id, amount=more)
    return job


def resubmit(job_id: UUID, *, actor: str) -> Job:
    """A new job like one that ended, under a fresh quote; it starts from the beginning, an endpoint with what was
    deployed last and not taken back.

    Raises NoFit when nothing fits now, and SecretsGone for a job with secrets: they were erased when it ended.
    """
    old = Job.objects.select_related("organisation", "submitted_by", "input_artifact").get(pk=job_id)
    if old.state not in JOB_ENDS:
        raise JobNotEnded(state=old.state)
    if old.is_escrow:
        raise HoldCannotGrow(what="This job cannot be done again by itself", how="and your wallet signs a new hold")
    last = endpoints.last_version(old)
    spec = from_wire(last.spec if last else old.spec)
    if spec.secrets:
        raise SecretsGone()
    view = quotes.make_quote(spec, old.organisation)
    if view.quote_id is None:
        raise NoFit(
            exclusions=[each.message for each in view.plan.exclusions], fixes=[each.message for each in view.plan.fixes]
        )
    return submit(
        organisation=old.organisation,
        user=old.submitted_by,
        spec=spec,
        quote_id=view.quote_id,
        input_artifact=last.input_artifact if last else old.input_artifact,
    )


def finish_attempt(
    job: Job, attempt: Attempt, reason: Reason, *, message: str = "", exit_code: int | None = None
) -> Job:
    """End a live attempt of a locked job, freeze what its leases cost, and decide by the table what comes next."""
    if job.kind == "serve":
        reason = replicas.believed(attempt, reason)
    outcome = REASONS[reason]
    # 1. The attempt, with its name and fault.
    if outcome.state == AttemptState.SUCCEEDED and attempt.state in {AttemptState.ASSIGNED, AttemptState.PREPARING}:
        mark_running(job, attempt)  # it was quicker than the beats that would have told
    advance(
        attempt,
        outcome.state,
        reason=reason,
        fault=outcome.fault.value,
        message=message,
        exit_code=exit_code,
        ended_at=clock.now(),
    )
    # 2. Its leases: devices free, price frozen, the nodes' records.
    for lease in attempt.leases.live().select_related("node"):
        leasing.end_lease(lease, outcome.billable, reason=reason)
        if job.is_escrow:
            escrow.settle(lease)
        if outcome.state == AttemptState.SUCCEEDED or lease.reported_reason == reason.value:
            _remember(lease.node, outcome)  # of a gang only the one that broke it
    wake_nodes([lease.node_id for lease in attempt.leases.all()])
    # 3. The job.
    if job.kind == "serve":
        return _after_replica(job, attempt, reason, outcome, message=message)
    if job.cancel_requested_at is not None and outcome.state != AttemptState.SUCCEEDED:
        return end_job(job, JobState.CANCELLED, Reason(job.cancel_reason))
    if outcome.state == AttemptState.SUCCEEDED:
        return end_job(job, JobState.COMPLETED, reason)
    if reason == Reason.BUDGET_EXHAUSTED and job.state == JobState.RUNNING and not job.is_escrow:
        return advance(job, JobState.PAUSED, reason=reason, message=message)
    if _may_try_again(job, reason, outcome):
        return advance(job, JobState.RECOVERING, reason=reason, message=message, queued_at=clock.now())
    return end_job(job, JobState.FAILED, reason, message=message)


def end_job(job: Job, state: JobState, reason: Reason | str, *, message: str = "", actor: str = "system") -> Job:
    """Bring a locked job to an end and settle it, in one transaction: its hold is 0 afterwards."""
    with transaction.atomic():
        advance(
            job,
            state,
            reason=str(reason),
            actor=actor,
            message=message,
            ended_at=clock.now(),
            sealed_secrets="",
            waiting_for="",
        )
        endpoints.close_endpoint(job)
        spent = spent_usd_micros(job)
        PriceHalt.objects.filter(job=job).delete()
        if job.is_escrow:
            charged = escrow.end(job)
            limits.conclude(job.id, charged=job.quote.payment.usd_micros(charged) if spent is None else spent)
            return job
        if job.kind == "serve":
            payments.settle_rest(job)
        elif holds.is_open(job.id):
            _settle(job)
        limits.conclude(job.id, charged=charged_of(job).usd_micros if job.kind == "serve" else spent)
    return job


def _settle(job: Job) -> None:
    """What each lease of a job that is no endpoint cost, all at once."""
    promotions.lock_job(job.id)
    charges = [
        settlement.LeaseCharge(lease.id, lease.node.provider.organisation_id, lease.charge_units)
        for lease in Lease.objects.filter(attempt__job=job, charge_units__gt=0).select_related("node__provider")
    ]
    settled = settlement.settle_job(job_id=job.id, charges=charges, fee_bps=settings.SOUK_FEE_BPS)
    promotions.take_back(job.id, spent=settled.charged)


def _after_replica(job: Job, attempt: Attempt, reason: Reason, outcome: Outcome, *, message: str) -> Job:
    """What one replica's end means for its endpoint, which goes on with the others, and with new ones.

    With the last one ends a job that was cancelled, came to its deadline, has no money left, or never can be served.
    """
    replicas.gone(attempt, reason=reason)
    if job.attempts.live().exists():
        return job
    if job.cancel_requested_at is not None:
        return end_job(job, JobState.CANCELLED, Reason(job.cancel_reason))
    if is_late(job):
        return end_late(job)
    was_up = job.state == JobState.RUNNING
    if outcome.fault == Fault.CUSTOMER and reason != Reason.BUDGET_EXHAUSTED and endpoints.is_hopeless(job):
        return end_job(job, JobState.FAILED, reason, message=message)
    if was_up and reason == Reason.BUDGET_EXHAUSTED and not payments.has_window(job):
        advance(job, JobState.PAUSED, reason=reason, message=message)
    elif not was_up:
        advance(job, JobState.RECOVERING, reason=reason, message=message, queued_at=clock.now())
    return job


def is_late(job: Job) -> bool:
    """Whether its deadline has passed."""
    return job.deadline_at is not None and job.deadline_at <= clock.now()


def end_late(job: Job) -> Job:
    """End a locked job that has nothing on nodes at its deadline: an endpoint that was up has done what it should."""
    if job.kind == "serve" and job.state == JobState.RUNNING:
        return end_job(job, JobState.COMPLETED, Reason.DEADLINE_EXCEEDED)
    message = "The job's deadline passed before it was done."
    return end_job(job, JobState.FAILED, Reason.DEADLINE_EXCEEDED, message=message)


def mark_running(job: Job, attempt: Attempt) -> None:
    """A locked job's attempt is up on all of its nodes, and healthy."""
    now = clock.now()
    advance(attempt, AttemptState.RUNNING, running_at=now)
    if job.state == JobState.PLACED:
        advance(job, JobState.RUNNING, running_at=job.running_at or now)


def stop_leases(leases: Iterable[Lease], reason: Reason) -> None:
    """Tell the nodes to stop these leases, with the first reason that was given; a lost message heals with the beat."""
    ids = [lease.pk for lease in leases]
    Lease.objects.live().filter(pk__in=ids, stop_reason="").update(stop_reason=reason.value, stop_asked_at=clock.now())
    wake_nodes(list(Lease.objects.filter(pk__in=ids).values_list("node_id", flat=True)))


def require_money(organisation: Organisation, asset_id: int, payment: Payment, units: int, *, cap: int) -> None:
    """Raise NotEnoughMoney, which says what is missing, where a hold of so many units could not be placed now."""
    has = balance(organisation.id, AccountKind.CUSTOMER_AVAILABLE, asset_id=asset_id)
    missing = units - has - promotions.spendable(organisation.id, asset_id)
    if missing > 0:
        raise NotEnoughMoney(payment, missing_units=missing, cap_usd_micros=cap)


def lock(job_id: UUID) -> Job:
    """The job under its row lock, inside a transaction; raises JobNotFound."""
    job = Job.objects.select_for_update(of=("self",)).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound()
    return job


def _deadline(spec: Spec, authorization: SignedHoldAuthorization | None) -> datetime | None:
    seconds = spec.budget.deadline_seconds
    known = [clock.now() + timedelta(seconds=seconds)] if seconds else []
    return min(known + ([escrow.deadline_of(authorization)] if authorization else []), default=None)


def _may_try_again(job: Job, reason: Reason, outcome: Outcome) -> bool:
    wanted = outcome.retry or reason.value in (job.spec.get("retry") or {}).get("on", [])
    # An attempt that ended because the budget did was no failed try.
    tried = job.attempts.exclude(reason=Reason.BUDGET_EXHAUSTED.value).count()
    return wanted and not is_late(job) and tried < job.attempts_max


def _remember(node: Node, outcome: Outcome) -> None:
    """What happened counts in the node's failure rate, and so in the cost to complete there."""
    if outcome.state == AttemptState.SUCCEEDED:
        Node.objects.filter(pk=node.pk).update(successes=F("successes") + 1)
    elif outcome.fault == Fault.PROVIDER:
        Node.objects.filter(pk=node.pk).update(failures=F("failures") + 1)
