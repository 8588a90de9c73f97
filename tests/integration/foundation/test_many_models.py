"""Models that refer to each other in a circle are made by one step, and taken away by it."""

from __future__ import annotations

import pytest
from django.db import connection, migrations, models
from django.db.migrations.state import ProjectState

from marketplace.foundation.many_models import CreateModels

pytestmark = pytest.mark.django_db

NAMES = ("circle_hen", "circle_egg")


def model_of(name: str, other: str) -> migrations.CreateModel:
    key = models.ForeignKey(f"circle.{other}", null=True, on_delete=models.CASCADE, related_name="+")
    return migrations.CreateModel(name, fields=[("id", models.BigAutoField(primary_key=True)), ("other", key)])


def tables() -> set[str]:
    return {name for name in connection.introspection.table_names() if name in NAMES}


def test_a_circle_is_made_and_taken_away() -> None:
    step = CreateModels(model_of("Hen", "egg"), model_of("Egg", "hen"))
    assert step.describe() == "Create models Hen, Egg"
    before = ProjectState()
    assert before.apps  # rendered, as it is where migrations are applied
    after = before.clone()
    step.state_forwards("circle", after)
    with connection.schema_editor() as editor:
        step.database_forwards("circle", editor, before, after)
    assert tables() == {*NAMES}
    with connection.cursor() as cursor:
        keys = [connection.introspection.get_relations(cursor, name) for name in NAMES]
    assert keys == [{"other_id": ("id", "circle_egg")}, {"other_id": ("id", "circle_hen")}]
    with connection.schema_editor() as editor:
        step.database_backwards("circle", editor, after, before)
    assert tables() == set()
