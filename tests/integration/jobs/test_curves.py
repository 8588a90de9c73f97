"""A job's curve: the whole run at a bounded size, whatever comes twice, late, out of order, or as a lie."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from jobs.models import Curve, CurvePoint, Lease, Stream
from jobs.running import streams
from jobs.running.curves import OWN_NAMES_MAX, POINTS_MAX, follow_curve, read_curve
from jobs.wire import CurvePointView
from provider_agent.protocol import APPEND_BYTES_MAX

pytestmark = pytest.mark.django_db


def send(lease: Lease, *events: dict[str, Any], offset: int | None = None) -> None:
    """What an agent appends, in pieces as large as may be."""
    data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    lease.refresh_from_db()
    at = lease.event_bytes if offset is None else offset
    for start in range(0, len(data), APPEND_BYTES_MAX):
        piece = data[start : start + APPEND_BYTES_MAX]
        streams.append(lease, Stream.EVENT, fence=lease.fence, offset=at + start, data=piece)


def step(number: int, loss: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"event": "step", "step": number, "loss": loss, **more}


def points(lease: Lease, name: str = "loss") -> list[CurvePointView]:
    series = read_curve(lease.attempt.job_id).series
    return next((each.points for each in series if each.name == name), [])


def steps(lease: Lease, name: str = "loss") -> list[int]:
    return [each.first_step for each in points(lease, name)]


def test_each_step_of_a_short_training_is_a_point(lease: Lease):
    send(lease, step(1, 3.0, learning_rate=0.1), step(2, 2.0), {"event": "evaluated", "step": 2, "loss": 2.5})
    send(lease, step(3, 1.0))
    assert [(p.first_step, p.last_step, p.newest, p.attempt) for p in points(lease)] == [
        (1, 1, 3.0, 1),
        (2, 2, 2.0, 1),
        (3, 3, 1.0, 1),
    ]
    assert [(p.first_step, p.mean) for p in points(lease, "evaluation_loss")] == [(2, 2.5)]
    assert steps(lease, "learning_rate") == [1]


def test_what_comes_twice_counts_once(lease: Lease):
    for _ in range(3):
        send(lease, step(1), step(2), offset=0)
    assert [p.count for p in points(lease)] == [1, 1]


def test_an_event_in_two_pieces_counts_once(lease: Lease):
    line = json.dumps(step(1)).encode() + b"\n"
    for start in range(0, len(line), 7):
        streams.append(lease, Stream.EVENT, fence=lease.fence, offset=start, data=line[start : start + 7])
    assert [p.count for p in points(lease)] == [1]


def test_a_long_training_keeps_its_whole_run(lease: Lease):
    count = 20_000
    send(lease, *(step(number, loss=float(number)) for number in range(1, count + 1)))
    found = points(lease)
    assert POINTS_MAX // 2 <= len(found) <= POINTS_MAX
    assert CurvePoint.objects.count() == Curve.objects.get().point_count == len(found)
    assert sum(p.count for p in found) == count
    assert (found[0].first_step, found[-1].last_step, found[-1].newest) == (1, count, float(count))
    for each in found:
        assert (each.lowest, each.highest) == (each.first_step, each.last_step)
        assert each.mean == pytest.approx((each.first_step + each.last_step) / 2)
    assert all(a.last_step < b.first_step for a, b in itertools.pairwise(found))


def test_steps_in_many_pieces_give_the_curve_of_one_piece(lease: Lease):
    events = [step(number * 10, loss=1 / number) for number in range(1, 2_500)]
    for start in range(0, len(events), 100):
        follow_curve(lease.attempt.job_id, 1, events[start : start + 100])
    pieces = points(lease)
    Curve.objects.all().delete()
    assert not CurvePoint.objects.exists()
    follow_curve(lease.attempt.job_id, 1, events)
    whole = points(lease)
    assert sum(p.count for p in pieces) == sum(p.count for p in whole) == 2_499
    assert min(len(pieces), len(whole)) > POINTS_MAX // 4
    assert pieces[-1].newest == whole[-1].newest
    assert min(p.lowest for p in pieces) == min(p.lowest for p in whole)


def test_steps_out_of_order_find_their_places(lease: Lease):
    send(lease, step(5), step(3))
    send(lease, step(4), step(1))
    assert steps(lease) == [1, 3, 4, 5]


def test_a_resumed_attempt_replaces_the_steps_after_its_checkpoint(lease: Lease):
    job = lease.attempt.job_id
    follow_curve(job, 1, [step(number, 1.0) for number in range(1, 51)])
    follow_curve(job, 2, [{"event": "resumed", "step": 40}])
    assert steps(lease) == list(range(1, 41))
    follow_curve(job, 2, [step(number, 9.0) for number in range(41, 46)])
    follow_curve(job, 1, [step(50, 1.0)])  # late, of the attempt that was lost
    found = points(lease)
    assert [p.first_step for p in found] == list(range(1, 46))
    assert [(p.attempt, p.mean) for p in found[38:42]] == [(1, 1.0), (1, 1.0), (2, 9.0), (2, 9.0)]


def test_an_attempt_that_begins_anew_replaces_all(lease: Lease):
    job = lease.attempt.job_id
    follow_curve(job, 1, [step(number) for number in range(1, 51)])
    follow_curve(job, 2, [{"event": "started"}, step(1, 7.0)])
    assert [(p.attempt, p.first_step, p.mean) for p in points(lease)] == [(2, 1, 7.0)]


def test_an_evaluation_before_the_first_step_leaves_the_step_before_it(lease: Lease):
    job = lease.attempt.job_id
    follow_curve(job, 1, [step(number) for number in range(1, 11)])
    follow_curve(job, 2, [{"event": "evaluated", "step": 5, "loss": 2.0}, step(6, 3.0)])
    assert steps(lease) == [1, 2, 3, 4, 5, 6]
    assert steps(lease, "evaluation_loss") == [5]


@pytest.mark.parametrize("baseline", [0, 5, 500])
@pytest.mark.parametrize("after", [{"event": "resumed", "step": 40}, {"event": "step", "step": 41, "loss": 9.0}])
def test_an_evaluation_before_the_resume_deletes_no_curve(lease: Lease, baseline: int, after: dict[str, Any]):
    job = lease.attempt.job_id
    follow_curve(job, 1, [step(number) for number in range(1, 51)])
    follow_curve(job, 2, [{"event": "started"}, {"event": "evaluated", "step": baseline, "loss": 2.0}])
    assert steps(lease) == list(range(1, 51))
    follow_curve(job, 2, [after])
    follow_curve(job, 2, [step(41, 9.0)])
    follow_curve(job, 1, [step(50)])  # late, of the attempt that was lost
    assert steps(lease) == list(range(1, 42))
    assert steps(lease, "evaluation_loss") == [baseline] * (baseline < 40)


def test_an_attempt_that_begins_anew_has_all_names_and_narrow_points_again(lease: Lease):
    job = lease.attempt.job_id
    own = {f"old_{number}": 1.0 for number in range(OWN_NAMES_MAX + 5)}
    follow_curve(job, 1, [step(number, metrics=own) for number in range(1, 2_001)])
    assert Curve.objects.get().stride > 1
    follow_curve(job, 2, [{"event": "evaluated", "step": 9_999, "loss": 1.0}])
    follow_curve(job, 2, [step(number, metrics={"new": 2.0}) for number in range(1, 4)])
    curve = read_curve(job)
    assert (curve.stride, curve.has_more_names, Curve.objects.get().names) == (1, False, ["new"])
    assert steps(lease, "new") == [1, 2, 3]


def test_after_a_resume_names_that_no_point_has_give_their_places_free(lease: Lease):
    job = lease.attempt.job_id
    follow_curve(job, 1, [step(1, metrics={"first": 1.0})])
    follow_curve(job, 1, [step(2, metrics={f"late_{number}": 1.0 for number in range(OWN_NAMES_MAX - 1)})])
    follow_curve(job, 2, [{"event": "resumed", "step": 1}, step(2, metrics={"new": 2.0})])
    assert Curve.objects.get().names == ["first", "new"]


def test_a_point_whose_name_the_curve_does_not_have_yet_is_read(lease: Lease):
    follow_curve(lease.attempt.job_id, 1, [step(1, metrics={"own": 1.0})])
    Curve.objects.update(names=[])  # as a reader sees it that read the curve before, and its points after
    assert steps(lease, "own") == [1]


def test_a_program_that_resumes_within_an_attempt_replaces_steps_too(lease: Lease):
    send(lease, *(step(number) for number in range(1, 11)))
    send(lease, step(11), {"event": "resumed", "step": 4}, step(5, 9.0), {"event": "resumed", "step": 5}, step(6, 9.0))
    assert [(p.first_step, p.mean) for p in points(lease)][3:] == [(4, 1.0), (5, 9.0), (6, 9.0)]


def test_a_wide_point_across_the_checkpoint_goes_whole(lease: Lease):
    job = lease.attempt.job_id
    follow_curve(job, 1, [step(number) for number in range(4_000)])
    stride = Curve.objects.get().stride
    assert stride > 2
    resumed = 100 * stride + 1
    follow_curve(job, 2, [{"event": "resumed", "step": resumed}, step(resumed + 1, 9.0)])
    before, last = points(lease)[-2:]
    assert (before.last_step, before.attempt) == (100 * stride - 1, 1)
    assert (last.first_step, last.mean, last.attempt, last.count) == (resumed + 1, 9.0, 2, 1)


def test_a_million_names_of_series_keep_the_first_twenty(lease: Lease):
    for start in range(0, 1_000, 50):
        send(lease, step(start, metrics={f"own_{start + number}": number for number in range(50)}))
    curve = read_curve(lease.attempt.job_id)
    assert [each.name for each in curve.series] == ["loss", *(f"own_{number}" for number in range(OWN_NAMES_MAX))]
    assert curve.has_more_names
    assert len(steps(lease)) == 20, "figures under names that are kept count on"


def test_lies_change_nothing(lease: Lease):
    send(lease, step(1, 2.0))
    data = b""
    for number in ("1e30", "-5", '"7"', "null", "9" * 31, "NaN", "[1]"):
        data += b'{"event":"step","step":%s,"loss":1}\n' % number.encode()
    for loss in ("NaN", "Infinity", '"1"', "1e31", "{}"):
        data += b'{"event":"step","step":2,"loss":%s,"metrics":[%s]}\n' % (loss.encode(), loss.encode())
    lease.refresh_from_db()
    streams.append(lease, Stream.EVENT, fence=lease.fence, offset=lease.event_bytes, data=data)
    assert [(p.first_step, p.mean) for p in points(lease)] == [(1, 2.0)]


def test_steps_of_any_distance_stay_bounded(lease: Lease):
    follow_curve(lease.attempt.job_id, 1, [step(number**4 % 10**12) for number in range(5_000)])
    follow_curve(lease.attempt.job_id, 1, [step(10**12 - 1)])
    found = points(lease)
    assert len(found) <= POINTS_MAX
    assert found[-1].last_step == 10**12 - 1


def test_the_other_nodes_of_a_gang_report_no_steps(lease: Lease):
    Lease.objects.filter(pk=lease.pk).update(node_rank=1)
    lease.refresh_from_db()
    send(lease, step(1))
    assert not Curve.objects.exists()
