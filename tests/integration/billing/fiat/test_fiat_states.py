"""The machines of card payments, and a dispute's, are the database's own: it refuses what `advance` refuses."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.apps import apps
from django.db import IntegrityError, transaction

from billing.models import TopUp
from billing.states.fiat import DISPUTE_MACHINE, REFUND_MACHINE, REVERSAL_MACHINE, TOP_UP_MACHINE
from marketplace.foundation.state_triggers import edges_in_database, edges_of

pytestmark = pytest.mark.django_db

MACHINES = {
    model._meta.db_table: model.STATE_MACHINE
    for model in apps.get_app_config("billing").get_models()
    if hasattr(model, "STATE_MACHINE")
}


def test_every_machine_of_billing_is_known_here() -> None:
    for known in (TOP_UP_MACHINE, REFUND_MACHINE, REVERSAL_MACHINE, DISPUTE_MACHINE):
        assert known in MACHINES.values()
    assert len(MACHINES) >= 11


@pytest.mark.parametrize("table", MACHINES)
def test_the_edges_of_the_database_are_those_of_the_code(table: str) -> None:
    assert edges_in_database(table, MACHINES[table]) == edges_of(MACHINES[table]) != set()


def top_up(state: str) -> TopUp:
    return TopUp.objects.create(owner_id=uuid4(), amount=10_000, method="checkout", actor="alice", state=state)


def test_a_top_up_begins_requested_and_does_not_go_back() -> None:
    with pytest.raises(IntegrityError, match="does not begin as open"), transaction.atomic():
        top_up("open")
    row = top_up("requested")
    TopUp.objects.filter(pk=row.pk).update(state="failed")
    with pytest.raises(IntegrityError, match="never goes from failed to open"), transaction.atomic():
        TopUp.objects.filter(pk=row.pk).update(state="open")
