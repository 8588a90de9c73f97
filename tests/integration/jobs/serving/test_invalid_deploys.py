"""Invalid deploys, and endpoints of others: what customers may not do to endpoints."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from billing.books import verify
from billing.charging import holds
from billing.models import Settlement
from jobs import lifecycle, sweeps
from jobs.endpoints.errors import ModelNotReady
from jobs.endpoints.publish import table_now
from jobs.matching import fleet
from jobs.models import Artifact, Attempt, Lease, Replica
from jobs.running import reports
from jobs.serving import prepaid_windows
from jobs.spec import SpecErrors, from_wire
from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from marketplace.foundation.errors import SoukError
from marketplace.nodes.models import Node
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.api.api_clients import API, client_of, post
from tests.integration.jobs.serving.conftest import (
    bring_up,
    deploy_spec,
    gateway_reports,
    leases_of,
    serve_spec,
    states,
    tick,
    up,
)
from tests.integration.racing import race
from tests.row_states import create_in_state, put_in_state
from tests.stage import DOLLAR

# --- Alice deploys


def test_a_training_is_not_deployed_as_a_version(alice: Organisation, bob: Node) -> None:
    _, endpoint, _ = up(alice)
    training = {**serve_spec(), "kind": "train", "train": {"model": "tiny-llama", "data": "python-docs"}}
    training |= {"work": {"steps": 10}}
    del training["serve"]
    with pytest.raises(SoukError):
        deploy_spec(endpoint, training)
    table_now()
    assert tick() >= 0


def test_files_that_did_not_arrive_are_not_deployed(alice: Organisation, bob: Node) -> None:
    _, endpoint, _ = up(alice)
    half = Artifact.objects.create(organisation=alice, kind="input", state="uploading")
    with pytest.raises(SoukError):
        deploy_spec(endpoint, serve_spec(limits={"max_tokens": 7}), files=half)


def test_a_version_with_more_replicas_has_a_window_for_them(alice: Organisation, bob: Node, carol: Node) -> None:
    _job, endpoint, _ = up(alice)
    deploy_spec(endpoint, serve_spec(replicas={"min": 4, "max": 4}))
    for _ in range(6):
        tick()
        bring_up(endpoint)
    assert len(leases_of(endpoint)) >= 4
    for lease in leases_of(endpoint):
        stage.see_running(lease, seconds=600)
    prepaid_windows.refill_windows()
    assert not Lease.objects.filter(stop_reason=Reason.BUDGET_EXHAUSTED).exists()


# --- endpoints of the API


def test_a_rollout_that_is_cancelled_settles_once_and_the_ledger_adds_up(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    job, endpoint, (_one,) = up(alice)
    deploy_spec(endpoint, serve_spec(limits={"max_tokens": 7}))
    tick()
    leases = bring_up(endpoint)
    assert len(leases) == 2
    for lease in leases:
        stage.see_running(lease, seconds=3600)
        stage.bill(lease, ms=3_600_000)
    gateway_reports(leases)
    found = race(
        lambda: lifecycle.cancel(job.pk, actor="alice"), tick, lambda: prepaid_windows.settle_one(job.pk), tick
    )
    assert not [each for each in found if isinstance(each, Exception)]
    for lease in leases_of(endpoint):
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert job.state == "cancelled" and not holds.is_open(job.pk)
    assert Settlement.objects.filter(job_id=job.pk, is_final=True).count() == 1
    assert set(endpoint.versions.values_list("state", flat=True)) == {"retired"}
    assert verify.verify().is_true


def test_an_endpoint_that_is_launched_again_serves_what_it_served_last(alice: Organisation, bob: Node) -> None:
    job, endpoint, _ = up(alice)
    deploy_spec(endpoint, serve_spec(limits={"max_tokens": 7}))
    lifecycle.cancel(job.pk, actor="alice")
    for lease in leases_of(endpoint):
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    again = lifecycle.resubmit(job.pk, actor="alice")
    assert again.spec["serve"]["limits"]["max_tokens"] == 7


@pytest.mark.parametrize("payment", [{"mode": "escrow"}, {"asset": "ETH"}, {"asset": "CRED"}])
def test_endpoints_are_paid_in_dollars(alice: Organisation, payment: dict[str, Any]) -> None:
    with pytest.raises(SpecErrors):
        from_wire({**serve_spec(), "payment": payment})


def test_mallory_and_those_who_only_read_change_no_endpoint(alice: Organisation, bob: Node) -> None:
    _, endpoint, _ = up(alice)
    body, path = {"spec": serve_spec(limits={"max_tokens": 7})}, f"/endpoints/{endpoint.pk}"
    mallory = client_of(stage.organisation("mallory"))
    reader = client_of(alice, [Scope.JOBS_READ])
    for client, wanted in ((mallory, 404), (reader, 403)):
        assert post(client, f"{path}/versions", body, key=str(uuid4())).status_code == wanted
        assert post(client, f"{path}/rollback").status_code in {wanted, 404}
        assert post(client, f"{path}/take-back").status_code in {wanted, 404}
    assert mallory.get(f"{API}{path}").status_code == 404
    assert endpoint.versions.count() == 1


def test_the_output_of_another_organisations_training_is_not_served(alice: Organisation, bob: Node) -> None:
    carol = stage.organisation("carola", usd_micros=50 * DOLLAR)
    theirs = stage.submit(carol)
    create_in_state(Artifact, "complete", organisation=carol, job=theirs, kind="output")
    _, endpoint, _ = up(alice)
    for model in ({"job": str(theirs.pk)}, {"job": str(uuid4())}):
        with pytest.raises(ModelNotReady):
            deploy_spec(endpoint, {**serve_spec(), "serve": {"model": model}})


def test_an_endpoint_that_spends_all_pauses_goes_on_and_ends_with_every_cent_booked(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    job, endpoint, leases = up(alice, replicas={"min": 2, "max": 2})
    assert len(leases) == 2
    for round_ in range(2):
        for lease in leases_of(endpoint):
            hours = lease.cap_units / lease.rate_units_per_hour
            stage.see_running(lease, seconds=hours * 3600)
            stage.bill(lease, ms=int(hours * 3_600_000) - 1000)
        gateway_reports(leases_of(endpoint))
        prepaid_windows.refill_windows()
        sweeps.sweep_jobs()
        stopped = [lease for lease in leases_of(endpoint) if lease.stop_reason]
        assert stopped, round_
        for lease in stopped:
            stage.finish(lease, Reason.BUDGET_EXHAUSTED)
            tick()
    for _ in range(8):
        for lease in bring_up(endpoint):
            hours = lease.cap_units / lease.rate_units_per_hour
            stage.see_running(lease, seconds=hours * 3600)
            stage.bill(lease, ms=max(int(hours * 3_600_000) - 1000, 0))
            gateway_reports([lease])
            sweeps.sweep_jobs()
            stage.finish(lease, Reason.BUDGET_EXHAUSTED)
        Replica.objects.filter(state="gone").update(ended_at=timezone.now() - timedelta(hours=1))
        tick()
    job.refresh_from_db()
    assert job.state == "paused", (job.waiting_for, states(endpoint))
    assert Attempt.objects.count() < 20
    charged = sum(Lease.objects.values_list("charge_units", flat=True))
    assert charged <= job.cap_usd_micros
    lifecycle.resume(job.pk, cap_usd_micros=40 * DOLLAR, actor="alice")
    tick()
    assert leases_of(endpoint)
    lifecycle.cancel(job.pk, actor="alice")
    for lease in leases_of(endpoint):
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert job.state == "cancelled" and not holds.is_open(job.pk)
    assert sum(Settlement.objects.values_list("charged", flat=True)) == charged
    assert verify.verify().is_true


def test_providers_that_drain_quarantine_or_fall_silent_leave_an_endpoint_that_heals(
    alice: Organisation, bob: Node, carol: Node
) -> None:
    job, endpoint, (lease,) = up(alice)
    put_in_state(Node.objects.filter(pk=lease.node_id), "quarantined")
    sweeps.sweep_jobs()
    _, table = table_now()
    assert [row.state for row in table.replicas] == ["draining"]
    stage.finish(lease, Reason.NODE_QUARANTINED)
    fleet.forget_supply()
    tick()
    (second,) = bring_up(endpoint)
    assert second.node_id != lease.node_id
    reports.lose(second.pk, Reason.NODE_SILENT, "The node stopped answering.")
    job.refresh_from_db()
    assert job.state == "running" and states(endpoint) == ["gone", "gone"]
    put_in_state(Node.objects.filter(pk=lease.node_id), "online")
    fleet.forget_supply()
    Replica.objects.update(ended_at=timezone.now() - timedelta(hours=1))
    tick()
    assert len(leases_of(endpoint)) == 1
