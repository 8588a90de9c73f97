"""The evaluation that a training's job file asks for, once the training has completed.

    1  plan     the training's end writes down that one is due, in its own transaction         (kinds/train.py)
    2  launch   a sweep quotes it and submits it, as a customer would, and notes its job with it: all or nothing
    3  try on   what hindered it is noted; what can pass is tried again, TRIES_MAX times in all

Whoever submitted the training agreed to the evaluation and to its budget by the training's job file. It is launched
only while they might still launch it themselves, with the key that they used. An evaluation is followed by nothing.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import OperationalError, transaction

from jobs import lifecycle
from jobs.errors import (
    ImageNotAllowed,
    InputMixed,
    InputNotReady,
    NoFit,
    ResultNotReady,
    UnknownKind,
    VolumeGone,
    VolumeNotFound,
    VolumeVersionNotFound,
)
from jobs.models import Artifact, FollowingEvaluation, Job
from jobs.results import name_inputs
from jobs.spec import Spec, SpecErrors, from_wire
from jobs.spec.following import evaluation_after
from marketplace.accounts.errors import OrderOutdated
from marketplace.accounts.permissions import require_right
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.foundation.errors import SoukError
from marketplace.foundation.exclusive import unless_raced

LAUNCHES_PER_SWEEP_MAX: Final = 20
TRIES_MAX: Final = 12
FIRST_WAIT: Final = timedelta(minutes=1)  # each later one is twice as long
WAIT_MAX: Final = timedelta(hours=3)  # so the last try is about 14 hours after the training's end
WHY_CHARACTERS_MAX: Final = 1000
# What no later try can change.
INPUT_GONE: Final = (ResultNotReady, InputNotReady, InputMixed, VolumeNotFound, VolumeVersionNotFound, VolumeGone)
FINAL: Final = (*INPUT_GONE, OrderOutdated, ImageNotAllowed, UnknownKind, SpecErrors)
OUR_FAULT: Final = "the marketplace could not launch it; its operators find the reason in their log"

log = logging.getLogger(__name__)


def launch_due() -> int:
    """Launch what is due; returns how many were launched."""
    due = FollowingEvaluation.objects.filter(next_try_at__lte=clock.now()).order_by("next_try_at")
    launched = 0
    for training_id in list(due.values_list("pk", flat=True)[:LAUNCHES_PER_SWEEP_MAX]):
        with unless_raced("An evaluation could not be launched.", job_id=str(training_id)):
            launched += try_to_launch(training_id) is not None
    return launched


def try_to_launch(training_id: UUID) -> Job | None:
    """The evaluation's job; None where it was launched before, or cannot be now, and then why is noted."""
    rows = FollowingEvaluation.objects.select_related("training__organisation", "training__submitted_by")
    following = rows.get(pk=training_id)
    if following.next_try_at is None:
        return None
    try:
        return _launch(following)
    except OperationalError:
        raise
    except (SoukError, SpecErrors) as error:
        _note(following, _reason(error), is_final=isinstance(error, FINAL))
    except Exception:
        log.exception("An evaluation could not be launched.", extra={"job_id": str(training_id)})
        _note(following, OUR_FAULT, is_final=False)
    return None


def _launch(following: FollowingEvaluation) -> Job | None:
    training = following.training
    with transaction.atomic():
        _require_right(training)
    spec = _spec_after(training)
    # It takes its time: before anything is locked.
    quote_id = lifecycle.quote_now(spec, training.organisation, after=training)
    with transaction.atomic():
        # Whoever else tries it has the row, or has had it: then it is not as it was read.
        mine = FollowingEvaluation.objects.select_for_update(of=("self",)).get(pk=training.pk)
        if mine.next_try_at is None or mine.tries != following.tries:
            return None
        _require_right(training)
        mine.job = lifecycle.submit(
            organisation=training.organisation,
            user=training.submitted_by,
            key_id=training.submitted_with,
            spec=spec,
            quote_id=quote_id,
            input_artifact=_input_of(training),
            after=training,
        )
        mine.next_try_at, mine.why_not = None, ""
        mine.save(update_fields=["job", "next_try_at", "why_not"])
    log.info("An evaluation was launched.", extra={"job_id": str(mine.job_id), "training_id": str(training.pk)})
    return mine.job


def _require_right(training: Job) -> None:
    key_id = training.submitted_with
    require_right(training.submitted_by, training.organisation_id, Scope.JOBS_WRITE, key_id=key_id)


def _spec_after(training: Job) -> Spec:
    """By ids and versions, so that it is asked about what the training had and left, whatever has the same name by
    now."""
    spec = from_wire(training.spec)
    inputs = name_inputs(training, spec, may_be_gone=True)  # `after` finds what the training had
    return evaluation_after(spec, job=str(training.pk), inputs=inputs)


def _input_of(training: Job) -> Artifact | None:
    if training.input_artifact_id is None:
        return None
    return Artifact.objects.get(pk=training.input_artifact_id)


def _note(following: FollowingEvaluation, why: str, *, is_final: bool) -> None:
    """Unless somebody else has tried it meanwhile."""
    tries = following.tries + 1
    is_over = is_final or tries >= TRIES_MAX
    still = FollowingEvaluation.objects.filter(pk=following.pk, tries=following.tries, next_try_at__isnull=False)
    next_try_at = None if is_over else clock.now() + min(WAIT_MAX, FIRST_WAIT * 2 ** (tries - 1))
    still.update(tries=tries, next_try_at=next_try_at, why_not=why[:WHY_CHARACTERS_MAX])
    log.info("An evaluation was not launched.", extra={"training_id": str(following.pk), "is_over": is_over})


def _reason(error: SoukError | SpecErrors) -> str:
    if isinstance(error, NoFit):
        return " ".join([error.message, *(f"{each}." for each in error.details["exclusions"])])
    return str(error)
