"""Every pair of states of every machine, tried past the code: the database allows the edges of the table, no other."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.apps import apps
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from django.utils import timezone

from jobs.models import Artifact, Attempt, EndpointVersion, Job, Lease, Replica
from marketplace.foundation.state_triggers import edges_in_database, edges_of
from marketplace.foundation.states import StateMachine
from marketplace.nodes.models import AgentRelease, Check, FabricLink, LinkProbe, Node
from tests import stage
from tests.integration.billing.scenes import past_the_triggers
from tests.integration.jobs.serving import scenes

pytestmark = pytest.mark.django_db

GUARDED = [Node, Check, LinkProbe, AgentRelease, Job, Attempt, Lease, Replica, EndpointVersion, Artifact]


def models_with_states() -> list[type[models.Model]]:
    return [model for model in apps.get_models() if hasattr(model, "STATE_MACHINE")]


def machine_of(model: type[models.Model]) -> StateMachine:
    return model.STATE_MACHINE  # type: ignore[attr-defined]


@pytest.fixture
def one_of_each() -> None:
    """One row of every model: Alice's endpoint has a replica on one of Bob's two nodes."""
    alice = stage.organisation("alice", usd_micros=50 * stage.DOLLAR)
    first, second = stage.node("first", fabric="rack"), stage.node("second", fabric="rack")
    endpoint = scenes.endpoint(alice)
    scenes.run(endpoint.job, endpoint, first)
    Artifact.objects.create(organisation=alice, kind="input")
    Check.objects.create(node=first, seed="0" * 64, demanded_at=timezone.now())
    a, b = sorted((first, second), key=lambda node: node.pk)
    link, _ = FabricLink.objects.get_or_create(a=a, b=b)
    LinkProbe.objects.create(link=link, listener=a, demanded_at=timezone.now())
    AgentRelease.objects.create(
        version="0.2.0", wheel="w", sha256="0" * 64, stage_at=timezone.now(), published_at=timezone.now()
    )


@pytest.mark.parametrize("model", GUARDED, ids=lambda model: model.__name__)
def test_the_database_allows_the_edges_of_the_machine_and_no_other(
    model: type[models.Model], one_of_each: None
) -> None:
    table, machine = model._meta.db_table, machine_of(model)
    row_id = model._default_manager.values_list("pk", flat=True)[0]
    move = f"UPDATE {table} SET state = %s WHERE id = %s"
    wrong = []
    for before in machine.transitions:
        with past_the_triggers(table) as cursor:
            cursor.execute(move, [before, row_id])
        for after in machine.transitions:
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute(move, [after, row_id])
                    transaction.set_rollback(True)
                is_allowed = True
            except IntegrityError as error:
                assert f"a {machine.kind} never goes from {before} to {after}" in str(error)
                is_allowed = False
            if is_allowed != (before == after or (before, after) in edges_of(machine)):
                wrong.append((before, after))
    assert wrong == []


@pytest.mark.parametrize("model", GUARDED, ids=lambda model: model.__name__)
def test_a_row_begins_in_the_first_state_of_its_machine(model: type[models.Model], one_of_each: None) -> None:
    """The row is written again under another id; what is unique in it is refused only after the state has passed."""
    table, machine = model._meta.db_table, machine_of(model)
    columns = [field.column for field in model._meta.concrete_fields if field.column not in {"id", "state"}]
    names = ", ".join(f'"{column}"' for column in columns)
    copy = f"INSERT INTO {table} (id, state, {names}) SELECT %s, %s, {names} FROM {table} LIMIT 1"
    for state in machine.transitions:
        with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(copy, [uuid4(), state])
            raise DatabaseError("the state has passed")
        is_refused = f"a {machine.kind} does not begin as {state}" in str(refused.value)
        assert is_refused == (state != machine.initial), f"{machine.kind} as {state}: {refused.value}"


def test_every_machine_of_the_code_is_in_the_database() -> None:
    differing = {
        model.__name__: edges_in_database(model._meta.db_table, machine_of(model)) ^ edges_of(machine_of(model))
        for model in models_with_states()
    }
    assert {name: edges for name, edges in differing.items() if edges} == {}
    assert set(GUARDED) <= set(models_with_states())
