"""Until when outputs and checkpoints are kept: SOUK_OUTPUT_KEPT_DAYS from when no job needs them any more.

    1  date    no living job made it or starts from it: kept_until
    2  free    a job needs it again, such as an endpoint that serves an old output, or it became a volume: no date
    3  warn    NOTICE before it goes its owners get a mail, one a day at most for all that goes: warned_at
    4  delete  past kept_until and warned, or past unpaid_until, which its own mail announced (`charges.py`)

Every step looks at a bounded number of rows, and any of them may be late: then things are kept longer, never less than
NOTICE after the mail.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Greatest

from billing.notices import mailing
from jobs.artifacts import prune
from jobs.artifacts.quotas import GIB
from jobs.models import Artifact, ArtifactKind, EndpointVersion, Job, JobInput, VolumeVersion
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.ids import new_id

NOTICE: Final = timedelta(days=7)
MAIL_EVERY: Final = timedelta(days=1)
DATED_PER_SWEEP_MAX: Final = 5_000
WARNED_PER_MAIL_MAX: Final = 10_000
OWNERS_PER_SWEEP_MAX: Final = 200
JOBS_NAMED_MAX: Final = 20


def sweep() -> int:
    """Date, warn and delete what is due; how many artifacts changed."""
    now = clock.now()
    return _date(now) + _free() + _warn(now) + _delete(now)


def kept_for() -> timedelta:
    """How long outputs and checkpoints are kept that no job needs."""
    return timedelta(days=settings.SOUK_OUTPUT_KEPT_DAYS)


def notice() -> timedelta:
    """How long before they go their owners know it; all the time where they are kept for less."""
    return min(NOTICE, kept_for())


def name_jobs(artifact_ids: Sequence[UUID]) -> str:
    """The jobs and volumes of these artifacts and their size, for a mail: `3 GiB of llama, the volume corpus`."""
    chosen = Artifact.objects.filter(pk__in=artifact_ids)
    volume = VolumeVersion.objects.filter(artifact=OuterRef("pk")).order_by("pk").values("volume__name")[:1]
    found = chosen.order_by("job__created_at").annotate(volume=Subquery(volume)).values_list("job__name", "volume")
    names = list(dict.fromkeys(f"the volume {kept}" if kept else name or "uploaded files" for name, kept in found))
    listed = names[:JOBS_NAMED_MAX]
    more = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    size = int(chosen.aggregate(sum=Sum("size_bytes"))["sum"] or 0)
    return f"{size / GIB:.2f} GiB of {', '.join(listed)}{more}"


def _date(now: datetime) -> int:
    """Counted from now on, so that a lower setting, or an update from before there were dates, surprises nobody."""
    # Inputs and prepared data have rules of their own (`prune.py`).
    undated = prune.unneeded(now).filter(kept_until=None)
    undated = undated.exclude(kind__in=[ArtifactKind.INPUT, ArtifactKind.PREPARED])
    ids = list(undated.values_list("pk", flat=True)[:DATED_PER_SWEEP_MAX])
    return Artifact.objects.filter(pk__in=ids).update(kept_until=now + kept_for(), warned_at=None)


def _free() -> int:
    living = Job.objects.unfinished()
    served = EndpointVersion.objects.filter(endpoint__job__in=living, input_artifact__isnull=False)
    starts = living.exclude(input_artifact=None)
    needed = Q(pk__in=starts.values("input_artifact")) | Q(pk__in=served.values("input_artifact"))
    needed |= Q(pk__in=JobInput.objects.filter(job__in=living).values("artifact"))
    dated = Artifact.objects.complete().filter(Q(kept_until__isnull=False) | Q(unpaid_until__isnull=False))
    freed = dated.filter(needed).update(kept_until=None, warned_at=None, unpaid_until=None)
    # A volume stops the clock, too, but not that of what nobody pays for.
    in_volumes = Exists(VolumeVersion.objects.filter(artifact=OuterRef("pk")))
    return freed + dated.filter(in_volumes, kept_until__isnull=False).update(kept_until=None, warned_at=None)


def _warn(now: datetime) -> int:
    unwarned = Artifact.objects.complete().filter(warned_at=None)
    lately = Artifact.objects.filter(organisation=OuterRef("organisation"), warned_at__gt=now - MAIL_EVERY)
    due = unwarned.filter(~Exists(lately), kept_until__lte=now + notice()).order_by()
    warned = 0
    for organisation_id in list(due.values_list("organisation_id", flat=True).distinct()[:OWNERS_PER_SWEEP_MAX]):
        with log_failures("Nobody could be warned.", organisation_id=str(organisation_id)), transaction.atomic():
            # What the next mail would name is in this one already.
            coming = unwarned.filter(organisation_id=organisation_id, kept_until__lte=now + notice() + MAIL_EVERY)
            warned += _mail(organisation_id, now, list(coming.values_list("pk", flat=True)[:WARNED_PER_MAIL_MAX]))
    return warned


def _mail(organisation_id: UUID, now: datetime, artifact_ids: Sequence[UUID]) -> int:
    chosen = Artifact.objects.complete().filter(pk__in=artifact_ids, warned_at=None)
    warned = chosen.update(warned_at=now, kept_until=Greatest(F("kept_until"), now + notice()))
    first = Artifact.objects.filter(pk__in=artifact_ids).order_by("kept_until").values_list("kept_until", flat=True)[0]
    text = (
        f"Outputs and checkpoints are kept for {settings.SOUK_OUTPUT_KEPT_DAYS:g} days after their job has ended. From"
        f" {first:%Y-%m-%d %H:%M} UTC on the marketplace deletes {name_jobs(artifact_ids)}. `souk download JOB` fetches"
        " what you want to keep; `souk artifacts JOB` shows until when each is kept."
    )
    owners = mailing.owners_of(organisation_id)
    mailing.notify(owners, f"kept/{new_id()}", subject=f"Files go on {first:%Y-%m-%d}", text=text)
    return warned


def _delete(now: datetime) -> int:
    kept = prune.unneeded(now)
    over = prune.delete(kept.filter(kept_until__lte=now, warned_at__isnull=False), reason="kept_long_enough")
    return over + prune.delete(prune.unneeded_by_jobs(now).filter(unpaid_until__lte=now), reason="not_paid")
