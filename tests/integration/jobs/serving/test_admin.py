"""The operator sees all of demand, changes nothing but quotas by a form, ends endpoints and drains replicas."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client

from jobs.artifacts import quotas
from jobs.models import Audit, Endpoint, EndpointMinute, Replica, ReplicaMinute, StorageQuota, WrongReplica
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState
from tests import stage
from tests.integration.jobs.serving import scenes
from tests.integration.jobs.serving.conftest import bring_up, gateway_reports, launch, leases_of, states, tick

MODELS = list(apps.get_app_config("jobs").get_models())
SET_BY_OPERATORS = {StorageQuota}


@pytest.fixture
def operator(transactional_db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@example.org"))
    return client


@pytest.fixture
def endpoint(alice: Organisation, bob: Node) -> Endpoint:
    """Alice's, with one ready replica at Bob's, and a row in most tables."""
    _, made = launch(alice)
    gateway_reports()
    tick()
    (lease,) = bring_up(made)
    scenes.key(alice)
    EndpointMinute.objects.get_or_create(endpoint=made, minute=29_000_000)
    ReplicaMinute.objects.get_or_create(replica=Replica.objects.get(), minute=29_000_000)
    verdict = {"request_id": uuid4(), "verdict": "mismatch", "at": clock.now()}
    Audit.objects.create(endpoint=made, lease=lease, checked_by=lease, **verdict)
    WrongReplica.objects.create(lease=lease, node=lease.node, because="2 against 1")
    return made


def test_every_table_is_shown_and_can_be_neither_changed_nor_deleted(operator: Client, endpoint: Endpoint) -> None:
    shown = 0
    for model in MODELS:
        if model._meta.auto_created or model in SET_BY_OPERATORS:
            continue
        assert admin.site.is_registered(model), model
        pages = f"/admin/jobs/{model._meta.model_name}/"
        assert operator.get(pages).status_code == 200, model
        assert operator.get(f"{pages}?q=alice").status_code == 200, model
        assert operator.get(f"{pages}add/").status_code == 403, model
        row = model._default_manager.first()
        if row is None:
            continue
        shown += 1
        assert operator.get(f"{pages}{row.pk}/change/").status_code == 200, model
        assert operator.post(f"{pages}{row.pk}/change/", {}).status_code == 403, model
        assert operator.post(f"{pages}{row.pk}/delete/", {"post": "yes"}).status_code == 403, model
    assert shown >= 12, "Endpoint, EndpointVersion, Replica, Gateway and their like have rows here"


def test_an_operator_sets_what_one_organisation_may_keep(operator: Client, alice: Organisation) -> None:
    answer = operator.post("/admin/jobs/storagequota/add/", {"organisation": str(alice.pk), "bytes_max": "1024"})
    assert (answer.status_code, quotas.allowed_bytes(alice.pk)) == (302, 1024)


def test_no_page_shows_a_keys_hash(operator: Client, endpoint: Endpoint, alice: Organisation) -> None:
    key = scenes.key(alice)
    assert key.key_hash not in operator.get(f"/admin/jobs/endpointkey/{key.pk}/change/").content.decode()


def test_the_operator_drains_a_replica_once(operator: Client, endpoint: Endpoint) -> None:
    replica = Replica.objects.get()
    chosen = {"action": "drain_replicas", "_selected_action": [str(replica.pk)]}
    operator.post("/admin/jobs/replica/", chosen)
    assert states(endpoint) == ["draining"]
    replica.refresh_from_db()
    assert (replica.reason, replica.draining_at is None) == ("operator", False)
    assert Event.objects.get(subject_id=str(replica.pk), to_state="draining").actor == "operator@example.org"
    page = operator.post("/admin/jobs/replica/", chosen, follow=True).content.decode()
    assert "cannot go to draining: it is draining" in page


def test_the_operator_ends_an_endpoint_whose_replicas_then_stop(operator: Client, endpoint: Endpoint) -> None:
    chosen = {"action": "end_endpoints", "_selected_action": [str(endpoint.pk)]}
    operator.post("/admin/jobs/endpoint/", chosen)
    endpoint.job.refresh_from_db()
    assert endpoint.job.cancel_reason == "cancelled_by_operator"
    (lease,) = leases_of(endpoint)
    assert lease.stop_reason == "cancelled_by_operator"
    stage.send_report(lease, AttemptState.CANCELLED)
    endpoint.refresh_from_db()
    endpoint.job.refresh_from_db()
    assert (endpoint.is_open, endpoint.job.state, states(endpoint)) == (False, "cancelled", ["gone"])
    operator.post("/admin/jobs/endpoint/", chosen)
    assert Endpoint.objects.get().job.state == "cancelled", "a second time changes nothing"


def test_prometheus_sees_endpoints_replicas_and_gateways(client: Client, endpoint: Endpoint) -> None:
    page = client.get("/metrics").content.decode()
    assert 'souk_endpoints{state="running"} 1.0' in page
    assert 'souk_replicas{state="ready"} 1.0' in page
    assert "souk_gateways_alive 1.0" in page
