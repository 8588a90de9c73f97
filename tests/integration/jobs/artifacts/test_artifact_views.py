"""What customers see of what their jobs left in the store."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.models import Artifact
from marketplace.accounts.models import Organisation
from tests.integration.jobs.api.api_clients import API, client_of
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_condemned_checkpoint_says_since_when(alice: Organisation) -> None:
    now = timezone.now()
    fields = {"organisation": alice, "kind": "checkpoint", "completed_at": now}
    good = create_in_state(Artifact, "complete", step=10, **fields)
    bad = create_in_state(Artifact, "complete", step=20, condemned_at=now, **fields)
    client = client_of(alice)
    shown = {each.pk: client.get(f"{API}/artifacts/{each.pk}").json()["condemned_at"] for each in (good, bad)}
    assert shown[good.pk] is None
    assert shown[bad.pk] is not None and shown[bad.pk][:19] == now.isoformat()[:19]
