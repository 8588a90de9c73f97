"""A job's curve: what its program reported at each step of the whole run, in at most a thousand points.

    follow_curve   add the figures of new events; where there are too many points, each takes twice as many steps
    read_curve     every series with its points, oldest step first

A point is a row, so an event costs one small row, however long the training is. The steps of a point are one bucket,
`stride` steps wide, so points never overlap, in whatever order steps come. An attempt that goes on from a checkpoint
reports steps anew: the points with steps after it go, and the newest attempt's take their place. The one that lies
across the checkpoint goes whole, with the steps before it: less than one stride. Where the attempt goes on is what its
first `resumed` or `step` says: an evaluation before it, such as one of the model as it was loaded, deletes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from jobs.models import Curve, CurvePoint
from jobs.running.curve_points import (
    KNOWN_SERIES,
    Figures,
    Point,
    merge_points,
    read_readings,
    read_step,
    single_point,
    widen,
)
from jobs.wire import CurvePointView, CurveSeries, JobCurve
from runtimes.contract import EventKind

POINTS_MAX: Final = 1000  # of a curve; of each series no more
POINTS_AFTER_WIDENING: Final = 750  # at most: so all rows are written anew once in 250 points
OWN_NAMES_MAX: Final = 20  # series that a program names itself
BUCKETS_ASKED_MAX: Final = 100  # more than these of one curve are read all at once


def follow_curve(job_id: UUID, attempt: int, events: Sequence[Mapping[str, Any]]) -> None:
    """Add what these events of an attempt say. Call it with the job's row locked; an older attempt adds nothing."""
    readings, cut = _read(events)
    if not readings and cut is None:
        return
    curve = Curve.objects.filter(pk=job_id).first()
    if curve is None:
        curve = Curve.objects.create(job_id=job_id, attempt=attempt)
    if attempt < curve.attempt:
        return
    before = _state(curve)
    if attempt > curve.attempt:
        first = next((each.step - 1 for each in readings if each.is_step), None)
        cuts = [each for each in (first, cut) if each is not None]
        if cuts:  # until then `curve.attempt` stays the one before: the cut is still to come
            curve.attempt, cut = attempt, min(cuts)
    if cut is not None and curve.point_count:
        _cut(curve, cut)
    _add(curve, attempt, [(each.step, _keep_names(curve, each.figures)) for each in readings])
    if _state(curve) != before:
        curve.save()


def read_curve(job_id: UUID) -> JobCurve:
    """All that is kept of a job's curve; an empty one where nothing was reported."""
    curve = Curve.objects.filter(pk=job_id).first()
    if curve is None:
        return JobCurve(stride=1, series=[], has_more_names=False)
    found: dict[str, list[CurvePointView]] = {name: [] for name in (*KNOWN_SERIES, *curve.names)}
    for row in CurvePoint.objects.filter(curve=curve).order_by("bucket"):
        for name, (count, mean, lowest, highest, newest) in row.values.items():
            # Without the curve's row locked a point may come with a name that the row did not have yet.
            found.setdefault(name, []).append(
                CurvePointView(
                    attempt=row.attempt,
                    first_step=row.first_step,
                    last_step=row.last_step,
                    count=count,
                    mean=mean,
                    lowest=lowest,
                    highest=highest,
                    newest=newest,
                )
            )
    series = [CurveSeries(name=name, points=points) for name, points in found.items() if points]
    return JobCurve(stride=curve.stride, series=series, has_more_names=curve.has_more_names)


@dataclass(frozen=True)
class _Reading:
    step: int
    is_step: bool  # of a `step` event: what an evaluation reports of a step goes beside its loss
    figures: Mapping[str, float]


def _read(events: Sequence[Mapping[str, Any]]) -> tuple[list[_Reading], int | None]:
    """What the events report, in their order; and the step after which all that was stored is void, if there is one.

    Each `resumed` voids what came before it, of the steps after its own.
    """
    found: list[_Reading] = []
    cut: int | None = None
    for event in reversed(events):
        step = read_step(event)
        if step is None:
            continue
        if event.get("event") == EventKind.RESUMED:
            cut = step if cut is None else min(cut, step)
        elif (figures := read_readings(event)) and (cut is None or step <= cut):
            found.append(_Reading(step, event["event"] == EventKind.STEP, figures))
    return found[::-1], cut


def _state(curve: Curve) -> tuple[Any, ...]:
    return curve.attempt, curve.stride, curve.point_count, list(curve.names), curve.has_more_names


def _cut(curve: Curve, step: int) -> None:
    """Delete the points with steps after `step`, and forget the names that only they had."""
    CurvePoint.objects.filter(curve=curve, last_step__gt=step).delete()
    left = list(CurvePoint.objects.filter(curve=curve).values_list("values", flat=True))
    curve.point_count = len(left)
    if not left:
        curve.stride, curve.names, curve.has_more_names = 1, [], False
        return
    used = {name for values in left for name in values}
    curve.names = [name for name in curve.names if name in used]


def _keep_names(curve: Curve, readings: Mapping[str, float]) -> dict[str, float]:
    """The readings whose series the curve has, or still takes."""
    kept = {}
    for name, value in readings.items():
        if name not in KNOWN_SERIES and name not in curve.names:
            if len(curve.names) >= OWN_NAMES_MAX:
                curve.has_more_names = True
                continue
            curve.names.append(name)
        kept[name] = value
    return kept


def _add(curve: Curve, attempt: int, readings: Sequence[tuple[int, Mapping[str, float]]]) -> None:
    new: dict[int, Point] = {}
    for step, found in readings:
        if found:
            _put(new, step // curve.stride, single_point(attempt, step, found))
    if not new:
        return
    points = _read_points(curve, list(new) if len(new) <= BUCKETS_ASKED_MAX else None)
    if curve.point_count + len(new.keys() - points.keys()) > POINTS_MAX:
        points = _read_points(curve, None)
        for bucket, point in new.items():
            _put(points, bucket, point)
        points, curve.stride = widen(points, curve.stride, POINTS_AFTER_WIDENING)
        CurvePoint.objects.filter(curve=curve).delete()
        curve.point_count = len(points)
        CurvePoint.objects.bulk_create(_row(curve, bucket, point) for bucket, point in points.items())
        return
    curve.point_count += len(new.keys() - points.keys())
    changed = {bucket: merge_points(points[bucket], new[bucket]) if bucket in points else new[bucket] for bucket in new}
    CurvePoint.objects.bulk_create(
        [_row(curve, bucket, point) for bucket, point in changed.items()],
        update_conflicts=True,
        unique_fields=["curve", "bucket"],
        update_fields=["attempt", "first_step", "last_step", "values"],
    )


def _put(points: dict[int, Point], bucket: int, point: Point) -> None:
    points[bucket] = merge_points(points[bucket], point) if bucket in points else point


def _read_points(curve: Curve, buckets: list[int] | None) -> dict[int, Point]:
    rows = CurvePoint.objects.filter(curve=curve)
    return {
        row.bucket: Point(
            row.attempt,
            row.first_step,
            row.last_step,
            {name: Figures(*figures) for name, figures in row.values.items()},
        )
        for row in (rows if buckets is None else rows.filter(bucket__in=buckets))
    }


def _row(curve: Curve, bucket: int, point: Point) -> CurvePoint:
    return CurvePoint(
        curve=curve,
        bucket=bucket,
        attempt=point.attempt,
        first_step=point.first_step,
        last_step=point.last_step,
        values={name: figures.as_list() for name, figures in point.series.items()},
    )
