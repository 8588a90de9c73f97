"""Beat's table and the packages' tasks agree."""

from __future__ import annotations

import pytest
from celery import Celery, current_app

from marketplace.config.celery import app
from marketplace.config.settings import CELERY_BEAT_SCHEDULE


@pytest.fixture(scope="module")
def loaded() -> Celery:
    app.loader.import_default_modules()
    return app


@pytest.mark.parametrize("entry", sorted(CELERY_BEAT_SCHEDULE))
def test_every_scheduled_name_is_a_task(loaded: Celery, entry: str) -> None:
    assert CELERY_BEAT_SCHEDULE[entry]["task"] in loaded.tasks


@pytest.mark.parametrize("entry", sorted(CELERY_BEAT_SCHEDULE))
def test_a_tick_that_nobody_took_expires_before_it_can_pile_up(entry: str) -> None:
    row = CELERY_BEAT_SCHEDULE[entry]
    period = row["schedule"] if isinstance(row["schedule"], float) else 24 * 3600.0
    assert 0 < row["options"]["expires"] <= period


def test_shared_tasks_belong_to_our_app(loaded: Celery) -> None:
    assert current_app.main == "souk"


def test_only_json_is_sent_and_accepted(loaded: Celery) -> None:
    assert loaded.conf.task_serializer == "json"
    assert loaded.conf.accept_content == ["json"]
    assert loaded.conf.task_ignore_result is True


def test_what_a_killed_worker_held_comes_back_soon(loaded: Celery) -> None:
    options = loaded.conf.broker_transport_options
    assert options["unacked_restore_interval"] == options["unacked_restore_throttle"] == 1
    assert options["visibility_timeout"] <= 300
