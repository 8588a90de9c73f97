"""Logs and events: whatever is repeated, lost or raced, every byte is there once."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from jobs.errors import BodyTooLarge, LeaseOver, OffsetGap, StaleFence, StreamNotFound
from jobs.models import Lease, Stream, StreamChunk
from jobs.running import streams
from provider_agent.protocol import APPEND_BYTES_MAX, AttemptState, Reason
from tests import stage

pytestmark = pytest.mark.django_db(transaction=True)


def log(lease: Lease, offset: int, data: bytes) -> int:
    return streams.append(lease, Stream.LOG, fence=lease.fence, offset=offset, data=data)


def events(lease: Lease, offset: int, *lines: dict) -> int:
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return streams.append(lease, Stream.EVENT, fence=lease.fence, offset=offset, data=data)


def read(lease: Lease, stream: Stream = Stream.LOG, **more):
    return streams.read_stream(lease.attempt.job, stream, **more)


def progress(lease: Lease) -> dict:
    lease.attempt.job.refresh_from_db()
    return lease.attempt.job.progress


def stored(lease: Lease) -> bytes:
    return b"".join(bytes(c.data) for c in StreamChunk.objects.filter(lease=lease, stream="log").order_by("offset"))


def test_what_is_appended_is_read(lease):
    assert log(lease, 0, b"loading\n") == 8
    assert log(lease, 8, b"step 1\n") == 15
    page = read(lease)
    assert (page.text, page.next_offset, page.is_complete) == ("loading\nstep 1\n", 15, False)
    assert read(lease, offset=8).text == "step 1\n"
    assert read(lease, offset=10).text == "ep 1\n"


def test_a_repeated_append_changes_nothing(lease):
    for _ in range(3):
        assert log(lease, 0, b"once\n") == 5
    assert stored(lease) == b"once\n"


def test_after_a_lost_reply_the_agent_sends_more_from_the_old_offset(lease):
    log(lease, 0, b"first\n")
    assert log(lease, 0, b"first\nsecond\n") == 13
    assert stored(lease) == b"first\nsecond\n"


def test_a_gap_is_refused_with_the_offset_to_go_on_from(lease):
    log(lease, 0, b"12345")
    with pytest.raises(OffsetGap) as refused:
        log(lease, 9, b"x")
    assert (refused.value.status, refused.value.details["offset"]) == (409, 5)
    assert stored(lease) == b"12345"


def test_two_appends_at_one_offset_have_the_effect_of_one(lease):
    start, results = threading.Barrier(2), []

    def append() -> None:
        start.wait()
        try:
            results.append(log(lease, 0, b"the same bytes\n"))
        finally:
            connection.close()

    racers = [threading.Thread(target=append) for _ in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert results == [15, 15]
    assert stored(lease) == b"the same bytes\n"


@pytest.mark.parametrize("difference", [-1, 1])
def test_another_fence_is_refused_and_stores_nothing(lease, difference: int):
    with pytest.raises(StaleFence):
        streams.append(lease, Stream.LOG, fence=lease.fence + difference, offset=0, data=b"stale\n")
    assert stored(lease) == b""


def test_an_append_has_a_limit(lease):
    with pytest.raises(BodyTooLarge):
        log(lease, 0, b"x" * (APPEND_BYTES_MAX + 1))


def test_a_log_beyond_the_quota_is_counted_and_says_so(lease, monkeypatch):
    monkeypatch.setattr(streams, "STREAM_BYTES_MAX", 10)
    assert log(lease, 0, b"12345678") == 8
    assert log(lease, 8, b"90ABCDEF") == 16
    assert log(lease, 16, b"more") == 20
    assert stored(lease) == b"1234567890"
    page = read(lease)
    assert page.text.startswith("1234567890\n[souk: only the first 10 bytes")
    assert page.next_offset == 20
    assert read(lease, offset=20).text == ""


def test_the_log_goes_on_after_the_end_until_its_last_line(lease):
    log(lease, 0, b"dying\n")
    stage.finish(lease, Reason.BAD_INPUT, exit_code=65, log_bytes=len(b"dying\nlast words\n"))
    assert not read(lease).is_complete
    log(lease, 6, b"last words\n")
    from jobs import sweeps

    sweeps.sweep_jobs()
    page = read(lease)
    assert (page.text, page.is_complete, page.job_state) == ("dying\nlast words\n", True, "failed")


def test_a_lease_whose_stream_has_ended_takes_repeats_and_nothing_new(lease):
    log(lease, 0, b"done\n")
    stage.finish(lease, log_bytes=5)
    assert log(lease, 0, b"done\n") == 5
    with pytest.raises(LeaseOver):
        log(lease, 5, b"forged afterwards\n")
    assert stored(lease) == b"done\n"


def test_the_log_of_a_lost_node_is_complete_with_what_arrived(lease):
    from jobs.running import reports

    log(lease, 0, b"alive\n")
    reports.lose(lease.id, Reason.NODE_SILENT, "silent")
    page = read(lease, attempt=1)
    assert (page.text, page.is_complete) == ("alive\n", True)


def test_nobody_waits_for_ever_for_bytes_that_were_promised(lease):
    stage.finish(lease, log_bytes=100)
    Lease.objects.filter(pk=lease.pk).update(reported_at=timezone.now() - timedelta(minutes=5))
    from jobs import sweeps

    sweeps.sweep_jobs()
    assert not read(lease).is_complete
    Lease.objects.filter(pk=lease.pk).update(ended_at=timezone.now() - timedelta(minutes=5))
    assert read(lease).is_complete


def test_a_reader_is_given_pages(lease, monkeypatch):
    monkeypatch.setattr(streams, "PAGE_BYTES_MAX", 4)
    for start in range(0, 9, 3):
        log(lease, start, b"abc")
    found, offset = "", 0
    for _ in range(3):
        page = read(lease, offset=offset)
        found, offset = found + page.text, page.next_offset
    assert (found, offset) == ("abcabcabc", 9)


def test_a_character_cut_in_two_is_shown_whole(lease):
    salam = "سلام\n".encode()
    log(lease, 0, salam[:3])
    first = read(lease)
    log(lease, 3, salam[3:])
    rest = read(lease, offset=first.next_offset)
    assert first.text + rest.text == "سلام\n"


def test_the_terminal_of_the_reader_obeys_nothing_that_a_program_prints(lease):
    raw = b"\x1b[2Jcleared\x1b]0;title\x07 \x1b[31mred\x1b[0m\rover\x00\x07\x08 \xc2\x9b31m \xe2\x80\xaetxt\n"
    log(lease, 0, raw)
    assert stored(lease) == raw
    assert read(lease).text == "cleared red\nover 31m txt\n"


def test_waiting_ends_as_soon_as_something_comes(lease):
    def append_later() -> None:
        time.sleep(0.5)
        log(lease, 0, b"at last\n")
        connection.close()

    writer = threading.Thread(target=append_later)
    writer.start()
    page = read(lease, wait_seconds=10)
    writer.join()
    assert page.text == "at last\n"


def test_waiting_in_vain_ends(lease):
    assert read(lease, wait_seconds=0.3).text == ""


def test_reading_a_job_that_was_never_placed_says_so(alice, bob):
    job = stage.submit(alice)
    page = streams.read_stream(job, Stream.LOG)
    assert (page.attempt, page.attempts, page.text, page.is_complete, page.job_state) == (0, 0, "", False, "queued")


def test_reading_an_attempt_that_never_was_is_not_found(lease):
    for wrong in ({"attempt": 7}, {"node_rank": 3}):
        with pytest.raises(StreamNotFound):
            read(lease, **wrong)


# --- progress


def test_events_move_the_progress(lease):
    offset = events(lease, 0, {"event": "started", "at": 1.0, "steps_total": 100})
    offset = events(lease, offset, {"event": "evaluated", "step": 0, "loss": 6.9})
    events(lease, offset, {"event": "step", "step": 5, "loss": 5.5, "tokens_per_second": 1000.0, "seconds": 0.1})
    found = progress(lease)
    assert (found["step"], found["steps_total"], found["loss"], found["eval_loss"]) == (5, 100, 5.5, 6.9)
    assert found["tokens_per_second"] == 1000.0


def test_an_event_line_may_come_in_pieces(lease):
    line = json.dumps({"event": "step", "step": 3, "loss": 1.5}).encode() + b"\n"
    for index in range(len(line)):
        streams.append(lease, Stream.EVENT, fence=lease.fence, offset=index, data=line[index : index + 1])
    assert progress(lease)["step"] == 3


def test_repeated_events_change_nothing(lease):
    events(lease, 0, {"event": "step", "step": 3, "loss": 1.5})
    before = progress(lease)
    events(lease, 0, {"event": "step", "step": 3, "loss": 1.5})
    assert progress(lease) == before


def test_events_count_with_the_progress_that_they_show_or_not_at_all(lease, monkeypatch):
    """An end waits for the last event, and asks then whether the program had loaded its checkpoint."""

    def is_killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(streams, "follow_events", is_killed)
        events(lease, 0, {"event": "resumed", "step": 50})
    lease.refresh_from_db()
    assert lease.event_bytes == 0
    events(lease, 0, {"event": "resumed", "step": 50})
    assert progress(lease)["resumed_from"] == 50


def test_events_and_reports_of_one_lease_wait_for_each_other_in_one_order(lease):
    """Whoever had the lease's row first and the job's second would deadlock with a report, which has the job's."""
    from django.db import transaction

    from jobs import lifecycle

    def append() -> None:
        events(lease, 0, {"event": "resumed", "step": 50})
        connection.close()

    sender = threading.Thread(target=append)
    with transaction.atomic():
        lifecycle.lock(lease.attempt.job_id)
        sender.start()
        time.sleep(0.3)  # it waits for the job
        Lease.objects.select_for_update(nowait=True).get(pk=lease.pk)
    sender.join()
    assert progress(lease)["resumed_from"] == 50


def test_what_a_program_writes_among_the_events_breaks_nothing(lease):
    rubbish = [
        b"not json\n",
        b"[]\n",
        b"null\n",
        b'{"event": ["step"]}\n',
        b'{"event": "step", "step": NaN, "loss": Infinity}\n',
        b'{"event": "step", "step": "\\u0000", "loss": "\\ud800"}\n',
        b'{"event": "step", "step": 1e999}\n',
        b'{"event": "step", "step": ' + b"9" * 5000 + b"}\n",
        b"\xff\xfe\n",
        b"[" * 5000 + b"\n",
        b"\n\n",
        b'{"event": "step", "step": 8, "loss": NaN}\n',
    ]
    data = b"".join(rubbish)
    streams.append(lease, Stream.EVENT, fence=lease.fence, offset=0, data=data)
    assert progress(lease)["step"] == 8
    assert "loss" not in progress(lease)


def test_late_events_of_an_older_attempt_do_not_move_the_progress_back(lease):
    events(lease, 0, {"event": "step", "step": 50, "loss": 1.0})
    from jobs.running import reports

    reports.lose(lease.id, Reason.NODE_SILENT, "silent")
    stage.node("carols-node")
    (second,) = stage.place(lease.attempt.job)
    stage.send_report(second, AttemptState.RUNNING)
    events(second, 0, {"event": "resumed", "step": 40}, {"event": "step", "step": 41, "loss": 1.1})
    assert (progress(lease)["step"], progress(lease)["resumed_from"]) == (41, 40)
    late = json.dumps({"event": "step", "step": 55, "loss": 0.9}).encode() + b"\n"
    offset = Lease.objects.get(pk=lease.pk).event_bytes
    assert streams.append(lease, Stream.EVENT, fence=lease.fence, offset=offset, data=late) > offset
    assert progress(lease)["step"] == 41
