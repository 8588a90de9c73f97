"""The lifecycle of a job. Read this first.

    1  submit            a signed quote becomes a job: QUEUED                                     (here)
    2  place_job         hold, leases, attempt in one transaction: PLACED                         (placement.py)
    3  desired_state     the nodes' next sync orders them to run it                               (assignments.py)
    4  apply_reports     the agents report that it is preparing, then running: RUNNING            (reports.py)
    5  finish_attempt    the agents report that it ended, or a sweep finds them silent:          (here)
                         the reasons table and its kind decide: completed, tried again, paused, failed
                                                                                            (kinds/retrying.py)
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

from billing.charging import holds, limits
from billing.proofs.escrow import SignedHoldAuthorization
from jobs.errors import (
    CapTooLow,
    HoldCannotGrow,
    JobEnded,
    JobNotEnded,
    JobNotFound,
    JobNotPaused,
    NoFit,
    SecretsGone,
    TooManyWaiting,
)
from jobs.escrow import holding
from jobs.kinds.registry import kind_named, kind_of
from jobs.kinds.retrying import NextStep
from jobs.leases import joining, leasing
from jobs.models import Artifact, Attempt, Job, Lease, PriceHalt
from jobs.pricing.price_locks import price_of, spent_usd_micros
from jobs.quoting import quotes
from jobs.results import find_results, keep_results, require_apart, require_complete
from jobs.spec import Spec, canonical
from jobs.states import JOB_ENDS, JOB_WAITING, JobState
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock, signing
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth
from marketplace.nodes.models import Node
from marketplace.nodes.wake import wake_nodes
from provider_agent.protocol import REASONS, AttemptState, Billable, Fault, Outcome, Reason

SECRETS_BYTES_MAX = 64 * 1024


def submit(
    *,
    organisation: Organisation,
    user: User | None,
    key_id: UUID | None = None,
    spec: Spec,
    quote_id: UUID,
    input_artifact: Artifact | None = None,
    secrets: Mapping[str, str] | None = None,
    authorization: SignedHoldAuthorization | None = None,
    after: Job | None = None,
) -> Job:
    """Turn a quote into a queued job, once; nothing is charged before it is placed.

    `key_id`: the API key that the user submits it with; None: in person.
    `after`: the training that it evaluates, whose inputs it is given (`find_results`).
    In escrow mode with the hold that the customer's wallet signed for it, which the contract opens before it is placed.

    Raises UnknownKind, ImageNotAllowed, ResultNotReady, InputNotReady, InputMixed, QuoteExpired, QuoteMismatch,
    QuoteUsed, TooManyWaiting, SpendLimitReached; NotEnoughMoney with the missing amount; and what `holding.check`
    raises.
    """
    kind = kind_named(spec.kind)
    quotes.check_image(spec)
    with transaction.atomic():
        quote = quotes.verify_quote(quote_id, organisation=organisation, spec=spec)
        _require_turn(organisation)
        input_artifact = kind.find_input(organisation, spec) or input_artifact
        results = find_results(organisation, spec, after=after)
        require_complete([*([input_artifact] if input_artifact else []), *results.values()])
        require_apart(spec, input_artifact)
        holding.check(quote, spec, authorization)
        if authorization is None:
            kind.require_money(organisation, quote, spec)
        sealed = json.dumps(dict(secrets or {}))
        if len(sealed) > SECRETS_BYTES_MAX:
            raise BadRequest(f"The job's secrets take {len(sealed)} bytes; at most {SECRETS_BYTES_MAX} are kept.")
        now = clock.now()
        job = Job.objects.create(
            id=quote.id if authorization else new_id(),  # in escrow mode the wallet signed for it beforehand
            organisation=organisation,
            submitted_by=user,
            submitted_with=key_id,
            quote=quote,
            name=spec.name,
            kind=kind.name,
            spec=canonical(spec),
            spec_hash=quote.spec_hash,
            sealed_secrets=signing.encrypt_secret(sealed) if secrets else "",
            input_artifact=input_artifact,
            price_ceiling_usd_micros=quote.price_ceiling_usd_micros,
            cap_usd_micros=quote.cap_usd_micros,
            attempts_max=spec.retry.max_attempts,
            payment_mode=spec.payment.mode,
            waiting_for=holding.waits_for(None) if authorization else "",
            deadline_at=_deadline(spec, authorization),
            queued_at=now,
        )
        keep_results(job, results)
        if authorization is not None:
            holding.hold(quote, authorization)
        limits.commit(
            job_id=job.id, owner_id=organisation.id, member_id=user.pk if user else None, amount=job.cap_usd_micros
        )
        record_birth(job, actor=str(user or "system"), data={"quote": str(quote.id)})
        kind.open(job, spec)
    return job


def _require_turn(organisation: Organisation) -> None:
    # A few more by a race do no harm: the queue is bounded, not counted.
    waiting = Job.objects.waiting().filter(organisation=organisation).order_by()
    if waiting[: settings.SOUK_WAITING_JOBS_MAX].count() >= settings.SOUK_WAITING_JOBS_MAX:
        raise TooManyWaiting(jobs_max=settings.SOUK_WAITING_JOBS_MAX)


def cancel(job_id: UUID, *, actor: str, reason: Reason = Reason.CANCELLED_BY_CUSTOMER) -> Job:
    """Stop a job in whatever state it is; nodes are ordered to save and stop it, and it ends when they have.

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


def resume(job_id: UUID, *, cap_usd_micros: int, actor: str, user: User | None = None) -> Job:
    """Raise a job's cap; a paused one goes back into the queue, and on from its newest checkpoint.

    A job that waits because the rest of its cap no longer covers the rest of its work is helped the same way. `user` is
    the member who asks for it, and whose limits a raised cap counts against; None: an operator does. Raises
    JobNotPaused for any other, CapTooLow, NotEnoughMoney, SpendLimitReached.
    """
    with transaction.atomic():
        job = lock(job_id)
        if job.state != JobState.PAUSED and job.state not in JOB_WAITING:
            raise JobNotPaused(state=job.state)
        kind = kind_of(job)
        if cap_usd_micros < job.cap_usd_micros or (cap_usd_micros == job.cap_usd_micros and not kind.may_keep_cap):
            raise CapTooLow(cap_usd_micros=cap_usd_micros, present_usd_micros=job.cap_usd_micros)
        is_held = holds.is_open(job.id)
        if job.is_escrow:
            raise HoldCannotGrow(what="This job cannot be resumed with more", how="with a larger budget.max_total")
        price = price_of(job)
        # At the price that is locked, rounded as a whole: what is held is the new cap's, to the unit.
        more = price.units_due(cap_usd_micros) - (price.units_due(job.cap_usd_micros) if is_held else 0)
        kind.require_more(job, price.payment, more, cap_usd_micros=cap_usd_micros)
        if cap_usd_micros > job.cap_usd_micros:
            limits.enlarge(job.id, amount=cap_usd_micros, member_id=user.pk if user else None)
        if job.state == JobState.PAUSED:
            advance(job, JobState.QUEUED, reason="resumed", actor=actor, queued_at=clock.now())
        job.cap_usd_micros, job.unfunded_units = cap_usd_micros, None
        job.save(update_fields=["cap_usd_micros", "unfunded_units"])
        kind.hold_more(job, more)
    return job


def resubmit(
    job_id: UUID, *, actor: str, user: User | None = None, key_id: UUID | None = None, quote_id: UUID | None = None
) -> Job:
    """A new job like one that ended, under the quote that somebody agreed to, else a fresh one; it starts from the
    beginning, an endpoint with what was deployed last and not rolled back.

    `user` is the member who asks for it (with the API key `key_id`, or in person), and whose limits it counts against;
    None: an operator does, and it stays the job of whoever submitted the old one. Raises NoFit when nothing fits now,
    and SecretsGone for a job with secrets: they were erased when it ended.
    """
    old = Job.objects.select_related("organisation", "submitted_by", "input_artifact").get(pk=job_id)
    if old.state not in JOB_ENDS:
        raise JobNotEnded(state=old.state)
    if old.is_escrow:
        raise HoldCannotGrow(what="This job cannot be done again by itself", how="and your wallet signs a new hold")
    spec, input_artifact = kind_of(old).to_repeat(old)
    if spec.secrets:
        raise SecretsGone()
    return submit(
        organisation=old.organisation,
        user=user or old.submitted_by,
        key_id=key_id if user else old.submitted_with,
        spec=spec,
        quote_id=quote_id or quote_now(spec, old.organisation),
        input_artifact=input_artifact,
    )


def quote_now(spec: Spec, organisation: Organisation, *, after: Job | None = None) -> UUID:
    """A fresh quote where nobody is asked about it; raises NoFit when nothing fits now, and what `make_quote` does."""
    view = quotes.make_quote(spec, organisation, after=after)
    if view.quote_id is None:
        raise NoFit(
            exclusions=[each.message for each in view.plan.exclusions], fixes=[each.message for each in view.plan.fixes]
        )
    return view.quote_id


def finish_attempt(
    job: Job, attempt: Attempt, reason: Reason, *, message: str = "", exit_code: int | None = None
) -> Job:
    """End a live attempt of a locked job, freeze what its leases cost, and decide by the table what comes next."""
    kind = kind_of(job)
    outcome = REASONS[reason]
    # 1. The attempt, with its name and fault.
    if outcome.state == AttemptState.SUCCEEDED and attempt.state in {AttemptState.ASSIGNED, AttemptState.PREPARING}:
        mark_running(job, attempt)  # it was quicker than the heartbeats that would have reported it
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
    joining.give_up(attempt)
    for lease in attempt.leases.live().select_related("node"):
        own_reason = _reason_of(attempt, lease, reason)
        leasing.end_lease(lease, REASONS[own_reason].billable, reason=own_reason)
        if job.is_escrow:
            holding.settle(lease)
        if outcome.state == AttemptState.SUCCEEDED or lease.reported_reason == reason.value:
            _remember(lease.node, outcome)  # of a gang only the one that broke it
    wake_nodes([lease.node_id for lease in attempt.leases.all()])
    # 3. The job, as its kind decides.
    return _take(job, kind.after_attempt(job, attempt, reason, outcome, message=message))


def _reason_of(attempt: Attempt, lease: Lease, reason: Reason) -> Reason:
    """Why a lease of an attempt ends that ends for `reason`. Where that one pays nothing, the others of a gang that
    went on before are paid what they had saved: whoever ended it came later, or was given what they had made."""
    is_others_doing = attempt.generation > 0 and lease.reported_reason != reason.value
    return Reason.GANG_BROKEN if is_others_doing and REASONS[reason].billable == Billable.NOTHING else reason


def _take(job: Job, step: NextStep | None) -> Job:
    """Do what the job's kind returned."""
    if step is None:
        return job
    if step.state in JOB_ENDS:
        return end_job(job, step.state, step.reason, message=step.message)
    queued_at = clock.now() if step.state in JOB_WAITING else job.queued_at
    return advance(job, step.state, reason=step.reason, message=step.message, queued_at=queued_at)


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
        kind = kind_of(job)
        kind.close(job)
        PriceHalt.objects.filter(job=job).delete()
        if job.is_escrow:
            charged, spent = holding.end(job), spent_usd_micros(job)
            limits.conclude(job.id, charged=job.quote.payment.usd_micros(charged) if spent is None else spent)
            return job
        kind.settle(job)
        limits.conclude(job.id, charged=kind.charged_usd_micros(job))
    return job


def end_late(job: Job) -> Job:
    """End a locked job that has nothing on nodes at its deadline."""
    return _take(job, kind_of(job).late_end(job))


def mark_running(job: Job, attempt: Attempt) -> None:
    """A locked job's attempt is up on all of its nodes, and healthy."""
    now = clock.now()
    advance(attempt, AttemptState.RUNNING, running_at=now)
    if job.state == JobState.PLACED:
        advance(job, JobState.RUNNING, running_at=job.running_at or now)


def stop_leases(leases: Iterable[Lease], reason: Reason) -> None:
    """Order the nodes to stop these leases, with the first reason given; the next sync repairs a lost message."""
    ids = [lease.pk for lease in leases]
    Lease.objects.live().filter(pk__in=ids, stop_reason="").update(stop_reason=reason.value, stop_asked_at=clock.now())
    wake_nodes(list(Lease.objects.filter(pk__in=ids).values_list("node_id", flat=True)))


def lock(job_id: UUID) -> Job:
    """The job under its row lock, inside a transaction; raises JobNotFound."""
    job = Job.objects.select_for_update(of=("self",)).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound()
    return job


def _deadline(spec: Spec, authorization: SignedHoldAuthorization | None) -> datetime | None:
    seconds = spec.budget.deadline_seconds
    known = [clock.now() + timedelta(seconds=seconds)] if seconds else []
    return min(known + ([holding.deadline_of(authorization)] if authorization else []), default=None)


def _remember(node: Node, outcome: Outcome) -> None:
    """What happened counts in the node's failure rate, and so in the cost to complete there."""
    if outcome.state == AttemptState.SUCCEEDED:
        Node.objects.filter(pk=node.pk).update(successes=F("successes") + 1)
    elif outcome.fault == Fault.PROVIDER:
        Node.objects.filter(pk=node.pk).update(failures=F("failures") + 1)
