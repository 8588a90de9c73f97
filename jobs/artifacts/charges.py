"""What is kept beyond a free allowance is paid for by the day; who cannot pay has less time to fetch it, and no debt.

    a day   costs (bytes - free bytes) x price / (1 GiB x 30 days), of what is complete when the day is charged, but
            for prepared data: a customer neither asks for them nor can delete them
    paid    in whole micro-dollars, the rest is carried to the next day, so that the sum is exact
    unpaid  nothing is owed; of what no living job needs the oldest goes NOTICE later, as much as is beyond the
            allowance, volumes too

A day is charged once an organisation, and what was not paid is tried again until the day is over. One on which no
worker ran is not charged at all.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, QuerySet, Sum

from billing.charging.storage import pay_for_storage
from billing.errors import AccountFrozen, InsufficientFunds
from billing.money import format_usd
from billing.notices import mailing
from jobs.artifacts import prune, retention
from jobs.artifacts.quotas import GIB
from jobs.models import Artifact, ArtifactKind, StorageCharge
from jobs.models.artifacts import STORAGE_UNITS_PER_MICRO
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures

ORGANISATIONS_PER_SWEEP_MAX: Final = 10_000
SHORTENED_MAX: Final = 10_000  # artifacts of one organisation and day


def charge_due() -> int:
    """Charge today where it has not been paid; how many organisations. Whoever is within the allowance owes nothing."""
    today = clock.now().date()
    beyond = _kept_by_organisation().filter(kept__gt=free_bytes()) if price() else _kept_by_organisation().none()
    paid = StorageCharge.objects.filter(day__gte=today, is_paid=True).values("organisation_id")
    due = beyond.exclude(organisation__in=paid).values_list("organisation_id", flat=True)
    count = 0
    for organisation_id in list(due[:ORGANISATIONS_PER_SWEEP_MAX]):
        with log_failures("Storage could not be charged.", organisation_id=str(organisation_id)):
            count += charge_day(organisation_id, today) is not None
    shortened = Artifact.objects.filter(unpaid_until__isnull=False)
    shortened.exclude(organisation__in=beyond.values("organisation_id")).update(unpaid_until=None)
    return count


def charge_day(organisation_id: UUID, day: date) -> StorageCharge | None:
    """Charge an organisation for one day, once; None where that is paid, or nothing is beyond the allowance.

    What was not paid is tried again, so that a top-up counts at the next sweep.
    """
    with transaction.atomic():
        _lock(organisation_id)
        newest = StorageCharge.objects.filter(organisation_id=organisation_id).order_by("-day").first()
        kept = _kept_by_organisation().filter(organisation=organisation_id).values_list("kept", flat=True).first() or 0
        beyond = max(0, int(kept) - free_bytes())
        if not beyond * price() or (newest and (newest.day > day or (newest.day == day and newest.is_paid))):
            return None
        charge = newest if newest and newest.day == day else StorageCharge(organisation_id=organisation_id, day=day)
        before = newest.remainder if newest else 0
        charge.kept_bytes, charge.free_bytes = int(kept), free_bytes()
        charge.usd_micros_per_gib_month, charge.charged_at = price(), clock.now()
        charge.due_usd_micros, after = divmod(beyond * price() + before, STORAGE_UNITS_PER_MICRO)
        charge.is_paid = _pay(organisation_id, charge.due_usd_micros, charge.pk)
        charge.charged_usd_micros = charge.due_usd_micros if charge.is_paid else 0
        charge.remainder = after if charge.is_paid else before
        is_first = charge is not newest
        charge.save()
        if charge.is_paid:
            shortened = Artifact.objects.filter(organisation_id=organisation_id, unpaid_until__isnull=False)
            shortened.update(unpaid_until=None)
        elif is_first:
            _shorten(charge, beyond)
        return charge


def price() -> int:
    """Of a GiB beyond the allowance for 30 days, in micro-USD."""
    return int(settings.SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH)


def free_bytes() -> int:
    """How much of what an organisation keeps costs nothing."""
    return int(settings.SOUK_STORAGE_GIB_FREE * GIB)


def _lock(organisation_id: UUID) -> None:
    """One charge of an organisation at a time, until the commit: each goes on with the remainder of the one before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"storage day of {organisation_id}"])


def _pay(organisation_id: UUID, amount: int, charge_id: UUID) -> bool:
    try:
        if amount:
            pay_for_storage(payer_id=organisation_id, amount=amount, charge_id=charge_id)
    except (InsufficientFunds, AccountFrozen):
        return False
    return True


def _shorten(charge: StorageCharge, beyond: int) -> None:
    """Let the oldest go that are beyond the allowance, with a mail; those that go already keep their date."""
    until = charge.charged_at + retention.NOTICE
    idle = prune.unneeded_by_jobs(charge.charged_at).filter(organisation_id=charge.organisation_id)
    idle = idle.exclude(kind=ArtifactKind.PREPARED)
    rows = idle.order_by(F("unpaid_until").asc(nulls_last=True), "completed_at", "pk")
    size, going, announced = 0, [], []
    for artifact_id, size_bytes, before in rows.values_list("pk", "size_bytes", "unpaid_until")[:SHORTENED_MAX]:
        if size >= beyond:
            break
        size += size_bytes
        going.append(artifact_id)
        if before is None and size_bytes:
            announced.append(artifact_id)
    idle.exclude(pk__in=going).exclude(unpaid_until=None).update(unpaid_until=None)  # others go, so these may stay
    if announced:
        Artifact.objects.filter(pk__in=announced).update(unpaid_until=until)
        _mail(charge, announced, until)


def _mail(charge: StorageCharge, artifact_ids: list[UUID], until: datetime) -> None:
    text = (
        f"Your organisation keeps {charge.kept_bytes / GIB:.2f} GiB. {charge.free_bytes / GIB:g} GiB are free; beyond"
        f" that a GiB costs {format_usd(charge.usd_micros_per_gib_month)} for 30 days. The balance did not cover the"
        f" {format_usd(charge.due_usd_micros)} for {charge.day}, so nothing was charged, and nothing is owed. From"
        f" {until:%Y-%m-%d %H:%M} UTC on the marketplace deletes {retention.name_jobs(artifact_ids)}, unless the"
        " balance covers a day before: `souk topup`. `souk download JOB` and `souk volumes get NAME` fetch what you"
        " want to keep. Files that a living job needs stay."
    )
    owners, what = mailing.owners_of(charge.organisation_id), f"storage/{charge.pk}"
    mailing.notify(owners, what, subject=f"Files that are not paid for go on {until:%Y-%m-%d}", text=text)


def _kept_by_organisation() -> QuerySet[Any, Any]:
    charged = Artifact.objects.complete().exclude(kind=ArtifactKind.PREPARED)
    kept = charged.order_by().values("organisation_id").annotate(kept=Sum("size_bytes"))
    return kept.order_by("organisation_id")
