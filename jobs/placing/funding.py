"""Waiting jobs whose hold their organisation's balance does not cover take no turn in the queue until it does.

A frozen balance covers nothing: one of its jobs would be given a place in every tick, and be refused it.

    set_aside   before matching: those whose money is not there leave the queue, and say so
    readmit     before the next tick: those whose money has come are back in it, the oldest first

The hold decides, when a job is placed: this only keeps those from being matched who could not be placed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from billing.account_kinds import AccountKind
from billing.models import Account, Hold
from jobs.models import Job
from jobs.payment.terms import Payment
from jobs.pricing.funds import spendable_units
from jobs.pricing.price_locks import price_of
from marketplace.foundation.exclusive import log_failures

ORGANISATIONS_READMITTED_MAX = 200  # whose balance is looked at in one tick; at random, so that all have their turn
JOBS_READMITTED_MAX = 500  # of one organisation and asset in one tick
_FROZEN = (
    "The balance is frozen: it takes money in and gives none out. It goes on by itself once an operator lifts that."
)


class _Purse(NamedTuple):
    """Whose money, of which asset."""

    organisation_id: UUID
    asset_id: int


def set_aside(jobs: Sequence[Job]) -> list[Job]:
    """Those of `jobs` that may be matched; of the others the row keeps what their hold needs.

    A job whose price or balance cannot be read is neither, and costs itself alone.
    """
    held = set(Hold.objects.open().filter(job_id__in=[job.pk for job in jobs]).values_list("job_id", flat=True))
    balances: dict[_Purse, int] = {}
    funded = []
    for job in jobs:
        with log_failures("What a waiting job needs could not be read.", job_id=str(job.pk)):
            if job.is_escrow or job.pk in held or _is_covered(job, balances):
                funded.append(job)
    return funded


def _is_covered(job: Job, balances: dict[_Purse, int]) -> bool:
    purse = _Purse(job.organisation_id, job.quote.asset_id)
    if purse not in balances:
        balances[purse] = _usable_units(purse)
    price = price_of(job)
    due = price.units_due(job.cap_usd_micros)
    if due <= balances[purse]:
        return True
    still = Job.objects.waiting().filter(pk=job.pk, cap_usd_micros=job.cap_usd_micros)  # not cancelled meanwhile
    said = _FROZEN if _is_frozen(purse) else _message(price.payment, due, balances[purse])
    still.update(unfunded_units=due, waiting_for=said)
    return False


def _usable_units(purse: _Purse) -> int:
    return 0 if _is_frozen(purse) else spendable_units(*purse)


def _is_frozen(purse: _Purse) -> bool:
    kind = AccountKind.CUSTOMER_AVAILABLE
    return Account.objects.filter(
        owner_id=purse.organisation_id, asset_id=purse.asset_id, kind=kind, is_frozen=True
    ).exists()


def readmit() -> int:
    """Jobs that were set aside are back in the queue, as many as their organisation's balance now covers."""
    lacking = Job.objects.waiting().filter(unfunded_units__isnull=False).order_by()
    readmitted = 0
    for purse in _at_random(lacking.values_list("organisation_id", "quote__asset_id").distinct()):
        with log_failures("A balance could not be read.", organisation_id=str(purse[0])):
            readmitted += _readmit_of(_Purse(*purse), lacking)
    return readmitted


def _readmit_of(purse: _Purse, lacking: QuerySet[Job]) -> int:
    left = _usable_units(purse)
    theirs = lacking.filter(organisation_id=purse.organisation_id, quote__asset_id=purse.asset_id)
    covered = []
    rows = theirs.filter(unfunded_units__lte=left).order_by("-priority", "queued_at", "id")
    for job_id, units in rows.values_list("pk", "unfunded_units")[:JOBS_READMITTED_MAX]:
        if units is not None and units <= left:
            left -= int(units)
            covered.append(job_id)
    return Job.objects.filter(pk__in=covered).update(unfunded_units=None)


def _at_random(purses: Iterable[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
    found = list(purses)
    return found if len(found) <= ORGANISATIONS_READMITTED_MAX else random.sample(found, ORGANISATIONS_READMITTED_MAX)


def _message(payment: Payment, due: int, available: int) -> str:
    return (
        f"The balance does not cover the job's cap. {payment.show(due - available)} more is needed: this takes "
        f"{payment.show(due)}, and {payment.show(available)} is there. It goes on by itself once that is deposited."
    )
