"""How far the planner was off for trainings like one that is planned.

    own   of the organisation itself: each of its trainings counts
    all   of the marketplace: each organisation and each provider has one vote, the median of what they did together, in
          the order of their newest training; trainings on nodes of one's own have none. Nothing is said of fewer than
          VOTES_MIN votes, so of at least so many organisations, and nothing of a model but that its family and the
          power of two of its parameters are those that were asked for.

Like it first are those of the same family and size on the same model of device, then all on that model, then on its
kind; always of the same method, and on one device or on several as it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from jobs.models import PlanCheck
from jobs.wire import PlanChecks, PlanCheckSummary
from marketplace.accounts.models import Organisation

VOTES_MIN: Final = 3
ROWS_READ_MAX: Final = 2_000  # of each likeness, the newest
DIGITS: Final = 3


@dataclass(frozen=True)
class Planned:
    """What is planned: only what others' trainings may be like."""

    device_kind: str
    device_model: str
    method: str
    is_shared: bool  # on several devices
    family: str = ""
    parameters: int = 0


@dataclass(frozen=True)
class Row:
    """One training, or several as one: how much more it took than planned, as a part of it; None: not known."""

    organisation: UUID
    provider: UUID
    memory: float | None
    seconds: float | None
    trainings: int = 1


def find_checks(organisation: Organisation, planned: Planned) -> PlanChecks:
    """Of the organisation's own trainings and of all; None where there are too few."""
    own = shared = None
    for like, wanted in _likenesses(planned):
        rows = PlanCheck.objects.filter(**wanted).order_by("-ended_at")
        if own is None:
            own = summarise(like, _rows(rows.filter(organisation=organisation)), votes_min=1)
        if shared is None:
            shared = summarise(like, _votes(_rows(rows.filter(is_own=False))), votes_min=VOTES_MIN)
    return PlanChecks(own=own, all=shared)


def summarise(like: str, rows: Sequence[Row], *, votes_min: int) -> PlanCheckSummary | None:
    """Medians over these rows; a figure that fewer than `votes_min` of them have is not said, None where none is."""
    memory = [row.memory for row in rows if row.memory is not None]
    seconds = [row.seconds for row in rows if row.seconds is not None]
    memory, seconds = (each if len(each) >= votes_min else [] for each in (memory, seconds))
    if not memory and not seconds:
        return None
    return PlanCheckSummary(
        like=like,
        trainings=sum(row.trainings for row in rows),
        votes=max(len(memory), len(seconds)),
        memory_error=_median(memory),
        memory_error_size=_median([abs(each) for each in memory]),
        seconds_error=_median(seconds),
        seconds_error_size=_median([abs(each) for each in seconds]),
    )


def _likenesses(planned: Planned) -> Iterable[tuple[str, Mapping[str, Any]]]:
    base: dict[str, Any] = {"device_kind": planned.device_kind, "method": planned.method}
    base |= {"ranks__gt": 1} if planned.is_shared else {"ranks": 1}
    on_model = base | {"device_model": planned.device_model}
    if planned.family and planned.parameters:
        least = 1 << (planned.parameters.bit_length() - 1)
        size = {"parameters__gte": least, "parameters__lt": 2 * least}
        yield "family, size and device", on_model | {"family": planned.family} | size
    if planned.device_model:
        yield "device", on_model
    yield "kind of device", base


def _rows(found: Any) -> list[Row]:
    columns = ("organisation_id", "provider_id", "planned_peak_bytes", "measured_peak_bytes")
    values = found.exclude(planned_peak_bytes=None, planned_seconds=None)
    values = values.values_list(*columns, "planned_seconds", "measured_seconds")[:ROWS_READ_MAX]
    return [
        Row(
            organisation,
            provider,
            None if not planned_peak else peak / planned_peak - 1,
            None if not planned_seconds else seconds / planned_seconds - 1,
        )
        for organisation, provider, planned_peak, peak, planned_seconds, seconds in values
    ]


def _votes(rows: Sequence[Row]) -> list[Row]:
    """One row for each pair of an organisation and a provider, none of whom is in two; newest pairs first."""
    pairs: dict[tuple[UUID, UUID], list[Row]] = {}
    for row in rows:
        pairs.setdefault((row.organisation, row.provider), []).append(row)
    seen: set[UUID] = set()
    votes = []
    for (organisation, provider), of_pair in pairs.items():
        if organisation in seen or provider in seen:
            continue
        seen |= {organisation, provider}
        memory = [row.memory for row in of_pair if row.memory is not None]
        seconds = [row.seconds for row in of_pair if row.seconds is not None]
        votes.append(Row(organisation, provider, _median(memory), _median(seconds), len(of_pair)))
    return votes


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), DIGITS) if values else None
