"""What ended jobs left is kept for a named time, announced by mail before it goes, and kept for living jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from billing.notices import mailing
from jobs import lifecycle, tasks
from jobs.artifacts import prune, quotas, retention
from jobs.artifacts.store import Store, prefix_for
from jobs.errors import InputNotReady
from jobs.models import Artifact, Job, Lease
from marketplace.accounts.models import Organisation
from marketplace.config.checks import check_retention
from marketplace.foundation import clock
from marketplace.foundation.models import Event, OutboxMessage
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of
from tests.integration.jobs.checkpointing import save
from tests.integration.racing import wait_for_blocked
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
Sweep = Callable[[float], None]
Day = Callable[[float], datetime]


@pytest.fixture
def store(local_store: Store) -> Store:
    return local_store


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch, day: Day) -> Sweep:
    """The periodic task, on a day."""

    def at(days: float) -> None:
        with monkeypatch.context() as moved:
            moved.setattr(clock, "now", lambda: day(days))
            tasks.prune_artifacts()

    return at


@pytest.fixture
def output(lease: Lease) -> Artifact:
    """What Alice's job left; it has ended."""
    made = output_of(lease)
    stage.finish(lease)
    return made


def output_of(lease: Lease, size: int = 5) -> Artifact:
    fields = {"organisation": lease.attempt.job.organisation, "job": lease.attempt.job, "attempt": lease.attempt}
    return create_in_state(Artifact, "complete", kind="output", size_bytes=size, completed_at=clock.now(), **fields)


def mails() -> list[dict[str, Any]]:
    return [each.payload for each in OutboxMessage.objects.filter(kind=mailing.MAIL_KIND).order_by("created_at")]


def kept_until(artifact: Artifact) -> datetime | None:
    artifact.refresh_from_db()
    return artifact.kept_until


def test_what_a_job_left_goes_announced_when_it_was_kept_long_enough(
    alice: Organisation, lease: Lease, store: Store, sweep: Sweep, day: Day
) -> None:
    artifact = save(lease, 10, {"weights": b"w"})
    shown = lambda: client_of(alice).get(f"{API}/artifacts/{artifact.pk}").json()["kept_until"]  # noqa: E731
    sweep(200)
    assert (stage.states_of([artifact]), shown(), mails()) == (["complete"], None, [])
    stage.finish(lease)
    sweep(0)
    assert shown()[:10] == f"{day(90):%Y-%m-%d}"
    sweep(82)
    assert mails() == []
    sweep(83)
    sweep(83.5)
    (mail,) = mails()
    assert f"{day(90):%Y-%m-%d}" in mail["subject"]
    assert "GiB of tiny" in mail["text"]
    sweep(89.9)
    assert stage.states_of([artifact]) == ["complete"]
    sweep(90.1)
    assert stage.states_of([artifact]) == ["deleted"]
    assert (store.sizes(prefix_for(artifact.pk)), quotas.kept_bytes(alice.pk), shown()) == ({}, 0, None)
    assert Event.objects.get(subject_id=artifact.pk, to_state="deleted").reason == "kept_long_enough"


def test_nothing_goes_before_its_owners_had_a_week_to_fetch_it(output: Artifact, store: Store, sweep: Sweep) -> None:
    sweep(0)
    sweep(100)  # the workers were away, and nobody got a mail
    assert (len(mails()), stage.states_of([output])) == (1, ["complete"])
    sweep(106.9)
    assert stage.states_of([output]) == ["complete"]
    sweep(107.1)
    assert (len(mails()), stage.states_of([output])) == (1, ["deleted"])


def test_what_was_there_before_there_were_dates_is_kept_from_now_on(output: Artifact, sweep: Sweep) -> None:
    Job.objects.update(ended_at=clock.now() - 1000 * DAY)
    sweep(0)
    assert kept_until(output) >= clock.now() + 89 * DAY


def test_an_output_that_a_living_job_starts_from_stays(
    alice: Organisation, output: Artifact, store: Store, sweep: Sweep
) -> None:
    sweep(0)
    sweep(84)
    job = stage.submit(alice, input_artifact=output)
    sweep(91)
    assert (stage.states_of([output]), kept_until(output)) == (["complete"], None)
    lifecycle.cancel(job.pk, actor="alice")
    sweep(92)
    assert kept_until(output) > clock.now() + 180 * DAY, "the time starts anew"
    sweep(176)
    assert len(mails()) == 2
    sweep(183)
    assert stage.states_of([output]) == ["deleted"]


def test_an_organisation_gets_one_mail_a_day_at_most(alice: Organisation, bob: Any, store: Store, sweep: Sweep) -> None:
    left = []
    for hour in range(4):
        _, (lease,) = stage.running_job(alice, name=f"job-{hour}")
        left.append(output_of(lease))
        stage.finish(lease)
        sweep(hour / 24)
    for hour in range(12):
        sweep(83 + hour / 24)
    (mail,) = mails()
    assert Artifact.objects.filter(warned_at=None).count() == 0
    sweep(90.2)
    assert set(stage.states_of(left)) == {"deleted"}
    assert "job-0, job-1, job-2, job-3." in mail["text"]


def test_each_sweep_deletes_a_bounded_number(
    alice: Organisation, lease: Lease, store: Store, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "ARTIFACTS_PER_SWEEP_MAX", 2)
    left = [save(lease, step, {"weights": b"w"}) for step in (10, 20)] + [output_of(lease)]
    stage.finish(lease)
    sweep(0)
    sweep(84)
    sweep(91)
    assert sorted(stage.states_of(left)) == ["complete", "deleted", "deleted"]
    sweep(91)
    assert set(stage.states_of(left)) == {"deleted"}


def test_who_submits_while_an_output_is_deleted_learns_that_it_is_gone(
    alice: Organisation, output: Artifact, store: Store
) -> None:
    errors: list[Exception] = []

    def submit() -> None:
        try:
            stage.submit(alice, input_artifact=output)
        except InputNotReady as error:
            errors.append(error)
        finally:
            connection.close()

    beside = threading.Thread(target=submit)
    with transaction.atomic():
        assert prune.delete(prune.unneeded(clock.now()).filter(pk=output.pk), reason="test") == 1
        beside.start()
        wait_for_blocked()
    beside.join()
    assert (len(errors), Job.objects.count()) == (1, 1)


def test_an_output_that_is_being_submitted_is_not_deleted(alice: Organisation, output: Artifact, store: Store) -> None:
    deleted: list[int] = []

    def delete() -> None:
        try:
            deleted.append(prune.delete(prune.unneeded(clock.now()).filter(pk=output.pk), reason="test"))
        finally:
            connection.close()

    beside = threading.Thread(target=delete)
    with transaction.atomic():
        stage.submit(alice, input_artifact=output)
        beside.start()
        wait_for_blocked()
    beside.join()
    assert (deleted, stage.states_of([output])) == ([0], ["complete"])


@pytest.mark.parametrize("days", [float("nan"), float("inf"), 0, -1, 36_501])
def test_a_time_that_cannot_be_meant_is_refused_at_the_start(settings: Any, days: float) -> None:
    assert check_retention(None) == []
    settings.SOUK_OUTPUT_KEPT_DAYS = days
    assert [found.id for found in check_retention(None)] == ["souk.E014"]


def test_where_less_than_the_notice_is_kept_the_mail_comes_at_once(
    output: Artifact, sweep: Sweep, settings: Any, store: Store
) -> None:
    settings.SOUK_OUTPUT_KEPT_DAYS = 2
    assert retention.notice() == 2 * DAY
    sweep(0)
    assert len(mails()) == 1
    sweep(2.1)
    assert stage.states_of([output]) == ["deleted"]
