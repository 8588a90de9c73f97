"""What a waiting job waits for, for people; where it fits nowhere, also what would help: it does not wait in silence.

A quote is a promise: its ceiling and its cap stay as they are. A job that no node takes under them is told the nearest
change that would fit, which a new quote has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from jobs.matching import fleet
from jobs.matching.demand import Demand
from jobs.matching.exclusion_reasons import Why
from jobs.matching.fixes import find_fixes
from jobs.matching.match import MatchResult
from jobs.matching.snapshot import FleetSnapshot
from jobs.models import Job
from jobs.states import JOB_WAITING

FIXES_MAX = 5  # demands for which a batch looks for a fix: each takes as long as several matches
FIXES_SHOWN_MAX = 2
_HELP = " It fits nowhere under the terms of its quote, which stay as they are. "


def show(result: MatchResult, demands: Mapping[str, Demand], jobs: Iterable[Job]) -> None:
    """Each job of a batch that was not placed shows why; one that fits nowhere also what would help."""
    shown = {str(job.pk): job.waiting_for for job in jobs}
    snapshot: FleetSnapshot | None = None
    fixes: dict[Demand, str] = {}
    for key, reason in result.reasons.items():
        message, demand = reason.message, demands[key]
        if not reason.is_possible:
            before, is_helped, help_before = shown[key].partition(_HELP)
            if is_helped and before == message:
                continue  # it says so already
            if demand not in fixes and len(fixes) < FIXES_MAX:
                snapshot = snapshot or fleet.take_snapshot()
                fixes[demand] = _fixes(demand, snapshot, [Why(each.code) for each in reason.exclusions])
            help_now = fixes[demand].format(job_id=key) if demand in fixes else help_before
            message += _HELP + help_now if help_now else ""
        show_reason(UUID(key), message)


def show_reason(job_id: UUID, message: str) -> None:
    """What a waiting job waits for, for people."""
    Job.objects.filter(pk=job_id, state__in=JOB_WAITING).exclude(waiting_for=message).update(waiting_for=message)


def _fixes(demand: Demand, snapshot: FleetSnapshot, reasons: Iterable[Why]) -> str:
    found = find_fixes(demand, snapshot, reasons)[:FIXES_SHOWN_MAX]
    if not found:
        return "Wait until such a node is there, or cancel the job (`souk cancel {job_id}`)."
    changes = (
        ", or ".join(f"{fix.field}: {fix.value} ({fix.message})" for fix in found).replace("{", "").replace("}", "")
    )
    return f"To go on now, cancel it (`souk cancel {{job_id}}`) and launch it again with {changes}."
