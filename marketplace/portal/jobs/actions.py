"""What a customer may do to a job: end it, give it more, do it again."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from jobs import lifecycle
from jobs.api.jobs import place_soon
from jobs.errors import JobEnded, JobNotFound, QuoteUsed
from jobs.kinds.registry import kind_of
from jobs.models import Job
from jobs.quoting import quotes
from jobs.spec import SpecErrors
from jobs.spec.units import parse_money
from marketplace.accounts.scopes import Scope
from marketplace.foundation.errors import BadRequest
from marketplace.portal.jobs.showing import shown
from marketplace.portal.jobs.views import find_job
from marketplace.portal.visitors import Visitor, actor_of, organisation_of, page, uuid_of

CHANGE: Final = "changing an organisation's jobs"
CANCELLED_AT_ONCE_MAX: Final = 50  # as many as a page of the list has


@page("POST")
def cancel(request: HttpRequest, visitor: Visitor, job_id: UUID) -> HttpResponseBase:
    """End it in whatever state it is; repeating it is harmless."""
    lifecycle.cancel(_to_change(visitor, job_id).pk, actor=actor_of(visitor))
    return redirect("job-page", job_id)


@page("POST")
def cancel_several(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """The ticked ones of a list, each by itself: one that has ended meanwhile keeps no other going."""
    organisation = organisation_of(visitor, Scope.JOBS_WRITE, CHANGE)
    wanted = list(filter(None, map(uuid_of, request.POST.getlist("job"))))
    if not 0 < len(wanted) <= CANCELLED_AT_ONCE_MAX:
        raise BadRequest(f"Tick from 1 to {CANCELLED_AT_ONCE_MAX} jobs to cancel.")
    for job_id in Job.objects.of(organisation).filter(pk__in=wanted).values_list("pk", flat=True):
        with suppress(JobEnded):
            lifecycle.cancel(job_id, actor=actor_of(visitor))
    return redirect("jobs-page")


@page("POST")
def give_more(request: HttpRequest, visitor: Visitor, job_id: UUID) -> HttpResponseBase:
    """A paused job goes on from its newest checkpoint, under a higher cap."""
    job = _to_change(visitor, job_id)
    try:
        cap = parse_money(request.POST.get("max_total", ""))
    except ValueError as error:
        raise BadRequest(f"The new cap {error}. Write it in dollars, such as 12.50.") from error
    lifecycle.resume(job.pk, cap_usd_micros=cap, actor=actor_of(visitor), user=visitor.user)
    place_soon()
    return redirect("job-page", job_id)


@page("POST")
def repeat(request: HttpRequest, visitor: Visitor, job_id: UUID) -> HttpResponseBase:
    """Show what doing it again costs at most; then do it, once for each price that was shown."""
    job = _to_change(visitor, job_id)
    old = shown(job)
    if not old.may_repeat:
        raise BadRequest("Only a job that has ended can be done again as it is, without secrets and without a wallet.")
    quote_id = uuid_of(request.POST.get("quote", ""))
    try:
        if quote_id is None:
            spec, _ = kind_of(job).to_repeat(job)
            context = {"visitor": visitor, "job": old, "quote": quotes.make_quote(spec, job.organisation)}
            return render(request, "portal/jobs/repeat.html", context)
        made = lifecycle.resubmit(job.pk, actor=actor_of(visitor), user=visitor.user, quote_id=quote_id)
    except SpecErrors as errors:
        raise BadRequest("This job file is from before a rule that it breaks now: edit a copy of it.") from errors
    except QuoteUsed:
        return to_job_of(visitor, quote_id) if quote_id else redirect("job-page", job_id)
    place_soon()
    return redirect("job-page", made.pk)


def to_job_of(visitor: Visitor, quote_id: UUID) -> HttpResponseBase:
    """The button was pressed twice: the job is there already. Raises JobNotFound for a quote of somebody else."""
    job = Job.objects.of(visitor.organisation).filter(quote_id=quote_id).first()
    if job is None:
        raise JobNotFound()
    return redirect("job-page", job.pk)


def _to_change(visitor: Visitor, job_id: UUID) -> Job:
    organisation_of(visitor, Scope.JOBS_WRITE, CHANGE)
    return find_job(visitor, job_id)
