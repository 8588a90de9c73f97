"""A second copy of what is kept, in another failure domain: made in the background, repaired from either side.

    copy_due        (periodic) both stores are read for suspected artifacts; complete ones without a copy get one
    suspect         bytes of the first store were missing or wrong: readers go to the copy until both were read
    release_copy    the artifact is gone, and its copy is due to go
    delete_copy     it goes: by the sweep (`prune`), since it waits for the second store
    alert_behind    operators are told while a copy is late
    alert_damaged   and while neither store has the announced bytes of something

What fails is tried later and later, and costs no other artifact its turn; organisations take turns. The bytes
themselves go through copying.py.

A check costs a reading of both stores, and whoever fetches may ask for one. So checks have a share of each run and one
artifact of each organisation in it, go on by file where that ended, and claims have a number a day. What was found good
in neither store is damaged until a check by digests, never by sizes, finds it good.

Bytes may be written a moment after their artifact was deleted. So a row exists before the first one is, says until when
more may come, and is deleted once they cannot: as long as it exists, the sweep deletes the copy's bytes.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, F, Min, OuterRef, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from billing.notices import alerts
from jobs.artifacts.choice import get_second_store, get_store, second_store_name
from jobs.artifacts.copying import (
    BUSY,
    ArtifactGone,
    DamagedBytes,
    Renewal,
    Stores,
    check_files,
    copy_files,
    is_complete,
)
from jobs.artifacts.store import Store, prefix_for
from jobs.models import Artifact, ArtifactCopy, ArtifactKind
from jobs.models.artifacts import ERROR_CHARACTERS_MAX
from jobs.states import ArtifactState
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures

ARTIFACTS_PER_RUN_MAX: Final = 200
CHECK_SECONDS_MAX: Final = 20.0  # of a run, after which no further file is checked
COPY_SECONDS_MAX: Final = 40.0  # of a run, after which no further file is copied
RETRY_FIRST: Final = timedelta(minutes=1)  # doubled with each failure
RETRY_MAX: Final = timedelta(days=1)
DELETE_AGAIN: Final = timedelta(minutes=5)
SUSPECT_EVERY: Final = timedelta(hours=6)  # a check costs a reading of both stores: whoever cries wolf pays nothing
CLAIMS_PER_DAY_MAX: Final = 20  # artifacts of an organisation that are checked because somebody says so
DAY: Final = timedelta(days=1)
ALERT: Final = "artifact_copies_behind"
DAMAGED_ALERT: Final = "artifacts_damaged"
NO_PROGRESS: Final = {"checked_files": 0, "lost_files": 0}  # of a check

log = logging.getLogger(__name__)


def copy_due() -> int:
    """Copy, or check, what is due; how many artifacts now have a whole copy that they had not, or had in doubt."""
    if not second_store_name():
        alerts.close_all([ALERT, DAMAGED_ALERT])
        return 0
    count = 0
    with log_failures("Artifacts could not be copied: the second store is away."):
        count = _copy_all(get_store(), get_second_store())
    alert_behind()
    alert_damaged()
    return count


def suspect(artifact_id: UUID, *, is_measured: bool = False) -> bool:
    """Take note that bytes of the first store are missing or wrong; whether all readers go to the copy now.

    It is checked once in SUSPECT_EVERY at most: until then a further suspicion changes nothing. Neither does a claim,
    which nobody here has measured, once CLAIMS_PER_DAY_MAX artifacts of the organisation were checked in a day or wait
    for it. Claims that come at one moment may pass that number by a few.
    """
    now = clock.now()
    copied = ArtifactCopy.objects.filter(pk=artifact_id, store=second_store_name(), copied_at__isnull=False)
    unchecked = Q(checked_at=None) | Q(checked_at__lte=now - SUSPECT_EVERY)
    fresh = copied.filter(unchecked, suspected_at=None)
    if (is_measured or _may_claim(artifact_id)) and fresh.update(suspected_at=now, next_try_at=now):
        text = "Bytes of an artifact are missing or wrong in the first store. artifact_id=%s is_measured=%s"
        log.warning(text, artifact_id, is_measured)
    return copied.filter(suspected_at__isnull=False).exists()


def _may_claim(artifact_id: UUID) -> bool:
    owner = Artifact.objects.filter(pk=artifact_id).values("organisation")
    recent = Q(suspected_at__isnull=False) | Q(checked_at__gt=clock.now() - DAY)
    return ArtifactCopy.objects.filter(recent, artifact__organisation__in=owner).count() < CLAIMS_PER_DAY_MAX


def release_copy(artifact_id: UUID) -> None:
    """The artifact is gone: the next sweep deletes its copy. Asks no store, so a customer's request may call it."""
    ArtifactCopy.objects.filter(pk=artifact_id).update(next_try_at=clock.now())


def delete_copy(artifact_id: UUID) -> bool:
    """Delete the bytes in the second store, and the row once no more can come; False where it must be tried again."""
    row = ArtifactCopy.objects.filter(pk=artifact_id, store=second_store_name()).first()
    if row is None:
        return True
    now = clock.now()
    try:
        if (store := get_second_store()) is not None:
            store.delete_prefix(prefix_for(artifact_id))
    except Exception:
        log.exception("A second copy could not be deleted; it is tried again.", extra={"artifact_id": str(artifact_id)})
        ArtifactCopy.objects.filter(pk=artifact_id).update(next_try_at=now + DELETE_AGAIN)
        return False
    is_over = Q(busy_until=None) | Q(busy_until__lte=now)
    return bool(ArtifactCopy.objects.filter(is_over, pk=artifact_id).delete()[0])


def left_over() -> QuerySet[ArtifactCopy]:
    """Copies of artifacts that are gone, to be deleted now."""
    now = clock.now()
    gone = ArtifactCopy.objects.filter(artifact__state__in=[ArtifactState.ABANDONED, ArtifactState.DELETED])
    return gone.filter(Q(busy_until=None) | Q(busy_until__lte=now), store=second_store_name(), next_try_at__lte=now)


def waiting() -> QuerySet[Artifact]:
    """What shall have a copy and has none. What nobody has good bytes of is not waited for."""
    settled = Q(copied_at__isnull=False) | Q(is_damaged=True)
    mine = ArtifactCopy.objects.filter(settled, store=second_store_name(), pk=OuterRef("pk"))
    return _wanted().filter(~Exists(mine))


def counts() -> dict[str, int]:
    """How many artifacts are copied, waiting, suspected, damaged."""
    mine = _of_complete()
    return {
        "copied": mine.filter(copied_at__isnull=False).count(),
        "waiting": waiting().count(),
        "suspected": mine.filter(suspected_at__isnull=False).count(),
        "damaged": mine.filter(is_damaged=True).count(),
    }


def _of_complete() -> QuerySet[ArtifactCopy]:
    return ArtifactCopy.objects.filter(store=second_store_name(), artifact__state=ArtifactState.COMPLETE)


def behind_seconds() -> float:
    """For how long the oldest artifact without a copy has been complete."""
    oldest = waiting().aggregate(oldest=Min("completed_at"))["oldest"]
    return max(0.0, (clock.now() - oldest).total_seconds()) if oldest else 0.0


def alert_behind() -> None:
    """Raise or close the one alert about copies that are late."""
    hours = behind_seconds() / 3600
    if hours <= settings.SOUK_ARTIFACT_SECOND_HOURS_MAX:
        alerts.close(ALERT)
        return
    failing = ArtifactCopy.objects.filter(copied_at=None, artifact__in=waiting()).exclude(last_error="")
    newest = failing.order_by("-tries").values_list("last_error", flat=True).first()
    alerts.raise_once(
        ALERT,
        kind=ALERT,
        message=(
            f"{waiting().count()} artifacts have no second copy, the oldest for {hours:.1f} hours. Is the second store"
            f" there, has it room, and is SOUK_ARTIFACT_SECOND_MIB_PER_SECOND enough? {newest or ''}"
        ),
    )


def alert_damaged() -> None:
    """Raise or close the one alert about artifacts that are good in neither store."""
    damaged = _of_complete().filter(is_damaged=True, artifact__in=_wanted()).order_by("next_try_at")
    newest = damaged.last()
    if newest is None:
        alerts.close(DAMAGED_ALERT)
        return
    alerts.raise_once(
        DAMAGED_ALERT,
        kind=DAMAGED_ALERT,
        subject=newest.pk,
        message=(
            f"{damaged.count()} artifacts have files of which neither store has the announced bytes. Restore them in"
            f" one store from a backup, or delete the artifacts. {newest.pk}: {newest.last_error}"
        ),
    )


def _copy_all(first: Store, second: Store | None) -> int:
    """First what is checked, then what is copied, each with its own time: neither waits for ever for the other."""
    if second is None:
        return 0
    count, stores = 0, Stores(first, second, 0.0)
    for due, seconds in ((_due_checks, CHECK_SECONDS_MAX), (_due_copies, COPY_SECONDS_MAX)):
        stores.ends_at = time.monotonic() + seconds
        for artifact_id in list(due().values_list("pk", flat=True)[:ARTIFACTS_PER_RUN_MAX]):
            if time.monotonic() > stores.ends_at:
                break
            with log_failures("An artifact could not be copied.", artifact_id=str(artifact_id)):
                count += _copy_one(stores, artifact_id)
    return count


def _wanted() -> QuerySet[Artifact]:
    """Inputs, outputs, and checkpoints that can be resumed from; not what any attempt can make again."""
    wanted = Artifact.objects.complete().exclude(kind=ArtifactKind.PREPARED)
    return wanted.exclude(kind=ArtifactKind.CHECKPOINT, condemned_at__isnull=False)


def _due_checks() -> QuerySet[Artifact]:
    """Of each organisation one that is suspected or damaged: one whose check has begun, if any, else the oldest."""
    now = clock.now()
    due = Q(copy__suspected_at__isnull=False) | Q(copy__is_damaged=True)
    found = _wanted().filter(due & _is_free(now), copy__store=second_store_name(), copy__next_try_at__lte=now)
    order = [F("copy__checked_files").desc(), F("copy__next_try_at").asc(), F("completed_at").asc()]
    turn = Window(RowNumber(), partition_by=[F("organisation")], order_by=order)
    return found.annotate(turn=turn).filter(turn=1).order_by("copy__next_try_at")


def _due_copies() -> QuerySet[Artifact]:
    """The oldest of each organisation, then the second ones, and so on."""
    now, name = clock.now(), second_store_name()
    elsewhere = Q(copy__isnull=True) | ~Q(copy__store=name)
    due = Q(copy__copied_at=None, copy__is_damaged=False, copy__next_try_at__lte=now)
    found = _wanted().filter(elsewhere | (due & _is_free(now)))
    turn = Window(RowNumber(), partition_by=[F("organisation")], order_by=[F("completed_at").asc()])
    return found.annotate(turn=turn).order_by("turn", "completed_at")


def _is_free(now: datetime) -> Q:
    return Q(copy__busy_until=None) | Q(copy__busy_until__lte=now)


def _copy_one(stores: Stores, artifact_id: UUID) -> bool:
    """Bring the copy of one artifact as far as this run's time goes; whether it is whole now."""
    row = _claim(artifact_id)
    if row is None:
        return False
    is_check, renew = _needs_check(row), Renewal(row.pk)
    try:
        is_cut_short = check_files(stores, row, renew) if is_check else copy_files(stores, row, renew)
    except ArtifactGone:
        delete_copy(artifact_id)
        return False
    except Exception as error:
        _note_failure(row, error)
        if not isinstance(error, DamagedBytes):
            raise
        log.warning("An artifact has no good bytes to copy. artifact_id=%s error=%s", artifact_id, error)
        return False
    now = clock.now()
    if is_cut_short:  # this run's time is over, and a later one goes on, after other organisations
        fields = {"next_try_at": now, "last_error": row.last_error} | _progress(row)
        ArtifactCopy.objects.filter(pk=row.pk).update(busy_until=None, **fields)
        return False
    fields = {"checked_at": now} if is_check else {}
    fields |= {"tries": 0, "suspected_at": None, "is_damaged": False, "last_error": "", "busy_until": None}
    ArtifactCopy.objects.filter(pk=row.pk).update(copied_at=now, **fields, **NO_PROGRESS)
    return True


def _needs_check(row: ArtifactCopy) -> bool:
    """Whether sizes say nothing: its bytes may be wrong in either store."""
    return row.suspected_at is not None or row.is_damaged


def _progress(row: ArtifactCopy) -> dict[str, Any]:
    return {"checked_files": row.checked_files, "lost_files": row.lost_files}


def _claim(artifact_id: UUID) -> ArtifactCopy | None:
    """The row, with the bytes that may come announced; None where the artifact is gone."""
    now, name = clock.now(), second_store_name()
    if not is_complete(artifact_id):
        return None
    row, _ = ArtifactCopy.objects.get_or_create(pk=artifact_id, defaults={"store": name, "next_try_at": now})
    if row.store != name:  # the operator chose another store: what was in the one before is no copy here
        row.store, row.copied_at, row.suspected_at, row.tries, row.is_damaged = name, None, None, 0, False
        row.checked_files = row.lost_files = 0
    row.busy_until = now + BUSY
    row.save()
    return row


def _note_failure(row: ArtifactCopy, error: Exception) -> None:
    """Put off the next try. What was damaged stays so while a store is away: that is no verdict."""
    later, now = min(RETRY_FIRST * 2 ** min(row.tries, 20), RETRY_MAX), clock.now()
    text = f"{type(error).__name__}: {error}"
    fields: dict[str, Any] = _progress(row)
    if isinstance(error, DamagedBytes):  # the next try reads both stores, and is no more frequent than other checks
        later = max(later, SUSPECT_EVERY)
        fields = {"is_damaged": True, "copied_at": None, "suspected_at": None, **NO_PROGRESS}
        fields |= {"checked_at": now} if _needs_check(row) else {}
    fields |= {"tries": F("tries") + 1, "last_error": text[:ERROR_CHARACTERS_MAX]}
    ArtifactCopy.objects.filter(pk=row.pk).update(busy_until=None, next_try_at=now + later, **fields)
