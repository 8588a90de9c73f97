"""A database from between two of the migrations that are one now is refused in words."""

from __future__ import annotations

import importlib

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from marketplace.config.database_age import check_age

pytestmark = pytest.mark.django_db

REPLACED = importlib.import_module("jobs.migrations.0001_tables").Migration.replaces


def test_a_database_of_this_version_is_not_too_old() -> None:
    assert check_age(None, databases=["default"]) == []


def test_a_database_that_lacks_a_step_is_refused_by_its_name() -> None:
    MigrationRecorder(connection).record_unapplied(*REPLACED[-1])
    MigrationRecorder(connection).record_unapplied("jobs", "0001_tables")
    (found,) = check_age(None, databases=["default"])
    assert ".".join(REPLACED[-1]) in found.msg
    with pytest.raises(CommandError, match=REPLACED[-1][1]):
        call_command("migrate", skip_checks=False, verbosity=0)


def test_a_database_that_began_none_of_an_app_is_not_too_old() -> None:
    recorder = MigrationRecorder(connection)
    for key in [*REPLACED, ("jobs", "0001_tables")]:
        recorder.record_unapplied(*key)
    assert check_age(None, databases=["default"]) == []
