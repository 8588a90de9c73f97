"""/api/v1/jobs: Alice submits, follows, stops; Mallory sees nothing of it."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Artifact, Job, Lease, Quote
from jobs.placing import placement
from jobs.wire import JobView
from marketplace.accounts.models import Organisation
from marketplace.foundation import signing
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of, post, quoted, submitted
from tests.integration.racing import race
from tests.row_states import create_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def mallory(transactional_db: None) -> Organisation:
    return stage.organisation("mallory", usd_micros=50 * DOLLAR)


def test_a_submitted_job_is_queued_and_shown(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    view = JobView.model_validate(submitted(client))
    assert (view.state, view.cap_usd_micros, view.cost_so_far_usd_micros) == ("queued", 2 * DOLLAR, 0)
    shown = client.get(f"{API}/jobs/{view.job_id}").json()
    assert JobView.model_validate(shown) == view
    assert shown["spec"]["name"] == "tiny"


def test_a_placed_job_shows_its_attempt_its_lease_and_what_it_cost_so_far(alice: Organisation, lease: Lease) -> None:
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=36_000)
    view = JobView.model_validate(client_of(alice).get(f"{API}/jobs/{lease.attempt.job_id}").json())
    ((shown,),) = [attempt.leases for attempt in view.attempts]
    assert (shown.node_name, shown.devices, shown.device_model) == ("bobs-node", 2, "NVIDIA H100")
    assert view.cost_so_far_usd_micros == shown.charge_usd_micros == 20_000  # two dollars an hour for 36 seconds


def test_what_a_node_claims_beyond_what_was_seen_is_not_in_the_cost(alice: Organisation, lease: Lease) -> None:
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=61_000)
    Lease.objects.filter(pk=lease.pk).update(running_at=timezone.now() - timedelta(seconds=36))
    stage.send_report(lease, AttemptState.RUNNING)
    cost = client_of(alice).get(f"{API}/jobs").json()["results"][0]["cost_so_far_usd_micros"]
    assert 20_000 <= cost < 24_000


def test_jobs_are_listed_newest_first_by_cursor(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    names = [submitted(client, name=f"job-{number}")["name"] for number in range(3)]
    page = client.get(f"{API}/jobs?page_size=2").json()
    rest = client.get(page["next"]).json()
    assert [row["name"] for row in page["results"] + rest["results"]] == names[::-1]
    assert rest["next"] is None
    assert page["results"][0]["attempts"] == []


def test_the_list_takes_as_many_queries_for_two_jobs_as_for_one(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    counts = []
    for name in ("first", "second"):
        submitted(client, name=name, resources={"gpus": 1})
        placement.place_batch()
        client.get(f"{API}/jobs")  # the key's last use is noted once a minute
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"{API}/jobs").json()["results"][0]["state"] == "placed"
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("path", ["", "/logs", "/events", "/artifacts", "/bill"])
def test_mallory_gets_404_for_alices_job(alice: Organisation, lease: Lease, mallory: Organisation, path: str) -> None:
    response = client_of(mallory).get(f"{API}/jobs/{lease.attempt.job_id}{path}")
    assert (response.status_code, response.json()["code"]) == (404, "job_not_found")
    assert client_of(alice).get(f"{API}/jobs/{lease.attempt.job_id}{path}").status_code == 200


@pytest.mark.parametrize(("path", "body"), [("cancel", {}), ("resume", {"max_total_usd_micros": 10**7}), ("retry", {})])
def test_mallory_cannot_touch_alices_job(lease: Lease, mallory: Organisation, path: str, body: dict[str, int]) -> None:
    response = post(client_of(mallory), f"/jobs/{lease.attempt.job_id}/{path}", body)
    assert response.status_code == 404
    assert Job.objects.get().cancel_requested_at is None
    assert client_of(mallory).get(f"{API}/jobs").json()["results"] == []


def test_mallory_cannot_submit_with_alices_quote_or_input(
    alice: Organisation, bob: Node, mallory: Organisation
) -> None:
    quote = quoted(client_of(alice))
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"]}
    assert post(client_of(mallory), "/jobs", body).json()["code"] == "quote_not_found"
    secret = create_in_state(Artifact, "complete", organisation=alice, kind="input")
    own = quoted(client_of(mallory))
    body = {"spec": own["spec"], "quote_id": own["quote_id"], "input_artifact_id": str(secret.id)}
    assert post(client_of(mallory), "/jobs", body).json()["code"] == "unknown_input"
    assert not Job.objects.exists()


def test_reading_takes_jobs_read_and_writing_jobs_write(alice: Organisation, lease: Lease) -> None:
    job = f"/jobs/{lease.attempt.job_id}"
    reader, accountant = client_of(alice, ["jobs:read"]), client_of(alice, ["billing:read"])
    assert reader.get(API + job).status_code == 200
    assert post(reader, job + "/cancel").json()["code"] == "scope_missing"
    assert reader.get(API + job + "/bill").status_code == 403
    assert accountant.get(API + job + "/bill").status_code == 200
    assert accountant.get(API + job).status_code == 403


def test_one_quote_makes_one_job(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    quote = quoted(client)
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"]}
    assert post(client, "/jobs", body, key="first").status_code == 201
    second = post(client, "/jobs", body, key="second")
    assert (second.status_code, second.json()["code"]) == (409, "quote_used")


def test_two_submits_at_once_with_one_key_make_one_job(alice: Organisation, bob: Node) -> None:
    client, other = client_of(alice), client_of(alice)
    quote = quoted(client)
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"]}
    answers = race(lambda: post(client, "/jobs", body, key="same"), lambda: post(other, "/jobs", body, key="same"))
    assert [getattr(answer, "status_code", answer) for answer in answers] == [201, 201]
    assert len({str(answer.json()["job_id"]) for answer in answers if not isinstance(answer, Exception)}) == 1
    assert Job.objects.count() == 1


def test_too_little_money_is_a_402_that_says_how_much_is_missing(bob: Node) -> None:
    poor = client_of(stage.organisation("poor", usd_micros=DOLLAR // 2))
    quote = quoted(poor)
    response = post(poor, "/jobs", {"spec": quote["spec"], "quote_id": quote["quote_id"]})
    assert response.status_code == 402
    assert response.json()["code"] == "not_enough_money"
    assert response.json()["details"]["missing_usd_micros"] == 1_500_000


def test_an_expired_quote_is_refused(alice: Organisation, bob: Node, settings: object) -> None:
    settings.SOUK_QUOTE_SECONDS = -1  # type: ignore[attr-defined]
    quote = quoted(client_of(alice))
    response = post(client_of(alice), "/jobs", {"spec": quote["spec"], "quote_id": quote["quote_id"]})
    assert (response.status_code, response.json()["code"]) == (409, "quote_expired")
    assert Quote.objects.count() == 1


def test_the_secrets_given_are_those_that_the_file_names_and_are_stored_sealed(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    quote = quoted(client, secrets=["TOKEN"])
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"]}
    refused = post(client, "/jobs", body)
    assert refused.json()["details"] == {"missing": ["TOKEN"], "unknown": []}
    taken = post(client, "/jobs", {**body, "secrets": {"TOKEN": "s3cret"}})
    assert taken.status_code == 201
    assert "s3cret" not in taken.content.decode()
    assert signing.decrypt_secret(Job.objects.get().sealed_secrets) == '{"TOKEN": "s3cret"}'


def test_a_file_that_names_files_needs_its_input(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    quote = quoted(client, files=["data.txt"])
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"]}
    assert post(client, "/jobs", body).json()["code"] == "input_missing"
    half = Artifact.objects.create(organisation=alice, kind="input")
    response = post(client, "/jobs", {**body, "input_artifact_id": str(half.id)})
    assert response.json()["code"] == "input_not_ready"


def test_a_queued_job_is_cancelled_at_once_and_twice_is_harmless(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    job = submitted(client)
    for _ in range(2):
        response = post(client, f"/jobs/{job['job_id']}/cancel")
        assert (response.status_code, response.json()["state"]) == (200, "cancelled")


def test_a_running_job_says_that_it_is_being_cancelled(alice: Organisation, lease: Lease) -> None:
    response = post(client_of(alice), f"/jobs/{lease.attempt.job_id}/cancel")
    assert (response.json()["state"], response.json()["is_cancelling"]) == ("running", True)


def test_only_a_paused_job_is_resumed(alice: Organisation, lease: Lease) -> None:
    response = post(client_of(alice), f"/jobs/{lease.attempt.job_id}/resume", {"max_total_usd_micros": 10**7})
    assert (response.status_code, response.json()["code"]) == (409, "job_not_paused")


def test_a_cancelled_job_is_done_again_as_a_new_one(alice: Organisation, bob: Node) -> None:
    client = client_of(alice)
    job = submitted(client)
    post(client, f"/jobs/{job['job_id']}/cancel")
    again = post(client, f"/jobs/{job['job_id']}/retry", key=str(uuid4()))
    assert again.status_code == 201
    assert again.json()["job_id"] != job["job_id"]


def test_no_job_without_a_key() -> None:
    from rest_framework.test import APIClient

    assert APIClient().get(f"{API}/jobs").status_code == 401
