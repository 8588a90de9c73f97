"""What the sync process remembers, and when it reads the database again."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from jobs.sync import memory
from jobs.sync.answers import Answer
from jobs.sync.memory import Memory
from provider_agent.protocol import AttemptState, LeaseReport, SyncRequest

NODE, BOOT = uuid4(), uuid4()
IDLE = Answer("v1", "online", [], [])


def report(state: AttemptState, lease_id: UUID | None = None) -> LeaseReport:
    return LeaseReport(lease_id=lease_id or NODE, fence=1, attempt_id=BOOT, state=state)


def request(*reports: LeaseReport, boot_id: UUID = BOOT) -> SyncRequest:
    return SyncRequest(protocol=1, boot_id=boot_id, leases=list(reports))


@pytest.fixture
def known() -> Memory:
    """A node whose empty sync was taken in at time 100, and answered."""
    found = Memory()
    found.remember(NODE, request(), 100)
    found.keep(NODE, request(), IDLE, wakes=0)
    return found


def test_the_first_sync_is_news():
    assert Memory().is_news(NODE, request(), 1)


def test_the_same_empty_sync_is_no_news(known):
    assert not known.is_news(NODE, request(), 101)


def test_a_running_lease_is_news_with_every_beat(known):
    running = request(report(AttemptState.RUNNING))
    known.remember(NODE, running, 101)
    assert known.is_news(NODE, running, 102)


def test_an_end_is_news_once(known):
    ended = request(report(AttemptState.SUCCEEDED))
    assert known.is_news(NODE, ended, 101)
    known.remember(NODE, ended, 101)
    assert not known.is_news(NODE, ended, 102)
    assert known.is_news(NODE, request(), 103)


def test_a_new_boot_is_news_and_an_old_one_is_a_replay(known):
    assert known.is_news(NODE, request(boot_id=uuid4()), 101)
    assert not known.is_news(NODE, request(boot_id=uuid4()), 99)


def test_what_was_signed_before_the_newest_is_no_longer_so(known):
    assert not known.is_news(NODE, request(report(AttemptState.RUNNING)), 99)


def test_an_idle_answer_is_kept_for_a_while(known, monkeypatch):
    assert known.answer_of(NODE, request()) is IDLE
    monkeypatch.setattr(memory, "ANSWER_SECONDS", 0.0)
    assert known.answer_of(NODE, request()) is None


def test_a_wake_ends_it(known):
    known.wake([uuid4()])
    assert known.answer_of(NODE, request()) is IDLE
    known.wake([NODE])
    assert known.answer_of(NODE, request()) is None


def test_a_break_in_the_subscription_ends_all(known):
    known.wake_all()
    assert known.answer_of(NODE, request()) is None


def test_an_answer_that_was_overtaken_by_a_wake_is_not_kept(known):
    wakes = known.of(NODE).wakes
    known.wake([NODE])
    known.keep(NODE, request(), IDLE, wakes=wakes)
    assert known.answer_of(NODE, request()) is None


def test_a_node_with_leases_is_always_answered_anew(known):
    running = request(report(AttemptState.RUNNING))
    known.keep(NODE, running, IDLE, wakes=0)
    assert known.answer_of(NODE, running) is None
    assert known.answer_of(NODE, request()) is None


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(memory, "NODES_MAX", 3)
    found = Memory()
    for _ in range(10):
        found.remember(uuid4(), request(), 1)
    assert len(found.nodes) <= 3
