"""What customers see of what their jobs left in the store."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.artifacts import quotas
from jobs.artifacts.store import Store, prefix_for
from jobs.models import Artifact, Lease
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of
from tests.integration.jobs.checkpointing import save
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


def test_customers_delete_what_no_living_job_needs(alice: Organisation, lease: Lease, local_store: Store) -> None:
    client, mallory = client_of(alice), client_of(stage.organisation("mallory"))
    saved = save(lease, 10, {"weights": b"w"})
    url = f"{API}/artifacts/{saved.pk}"
    refused = client.delete(url)
    assert (refused.status_code, refused.json()["code"]) == (409, "artifact_in_use")
    stage.finish(lease)
    assert mallory.delete(url).status_code == 404
    assert client_of(alice, ["jobs:read"]).delete(url).status_code == 403
    assert stage.states_of([saved]) == ["complete"]
    for _ in range(2):
        deleted = client.delete(url)
        assert (deleted.status_code, deleted.json()["state"], deleted.json()["files"]) == (200, "deleted", [])
    assert (local_store.sizes(prefix_for(saved.pk)), quotas.kept_bytes(alice.pk)) == ({}, 0)


def test_what_another_job_starts_from_or_is_not_complete_is_not_deleted(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    needed = create_in_state(Artifact, "complete", organisation=alice, kind="input")
    stage.submit(alice, input_artifact=needed)
    half = create_in_state(Artifact, "uploading", organisation=alice, kind="input")
    codes = [client.delete(f"{API}/artifacts/{each.pk}").json()["code"] for each in (needed, half)]
    assert codes == ["artifact_in_use", "artifact_closed"]
    assert stage.states_of([needed, half]) == ["complete", "uploading"]
