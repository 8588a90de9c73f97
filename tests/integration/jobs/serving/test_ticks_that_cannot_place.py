"""A tick that finds no money, no device, no version or no node any more says so, and harms no other endpoint."""

from __future__ import annotations

from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.charging import holds
from billing.models import Account
from jobs.endpoints import amounts, payments
from jobs.models import Endpoint, EndpointVersion, Job, LeaseDevice
from jobs.serving import observe, prepaid_windows, replica_placement
from jobs.states import VersionState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from marketplace.nodes.states import NodeState
from tests.integration.jobs.serving import scenes
from tests.integration.jobs.serving.conftest import bring_up, gateway_reports, launch, leases_of, states, tick, up
from tests.row_states import put_in_state
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def freeze(owner: Organisation) -> None:
    Account.objects.filter(owner_id=owner.pk, kind=AccountKind.CUSTOMER_AVAILABLE).update(is_frozen=True)


def waits_for(endpoint: Endpoint) -> str:
    return Job.objects.get(pk=endpoint.job_id).waiting_for


def test_an_endpoint_whose_money_was_spent_elsewhere_says_so(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    rest = balance(alice.id, AccountKind.CUSTOMER_AVAILABLE)
    holds.place_hold(owner_id=alice.id, job_id=uuid4(), amount=rest)
    gateway_reports()
    tick()
    assert waits_for(endpoint).startswith("The balance does not cover the endpoint's hold.")
    assert leases_of(endpoint) == []
    assert not LeaseDevice.objects.filter(is_live=True).exists()


def test_an_endpoint_of_a_frozen_account_says_so_and_starts_later(alice: Organisation, bob: Node) -> None:
    _, endpoint = launch(alice)
    freeze(alice)
    gateway_reports()
    tick()
    assert "frozen" in waits_for(endpoint)
    assert leases_of(endpoint) == []
    Account.objects.update(is_frozen=False)
    tick()
    assert len(leases_of(endpoint)) == 1
    assert waits_for(endpoint) == ""


def test_a_cancelled_endpoint_gets_no_replica(alice: Organisation, bob: Node) -> None:
    job, endpoint = launch(alice)
    gateway_reports()
    Job.objects.filter(pk=job.pk).update(cancel_requested_at=clock.now())
    version = endpoint.versions.get()
    assert replica_placement.place_replicas(endpoint, version, 1, placed=[]) == 0
    assert leases_of(endpoint) == []


def test_a_budget_that_its_replicas_use_up_starts_no_other(alice: Organisation, bob: Node, carol: Node) -> None:
    _, endpoint, [lease] = up(alice, replicas={"min": 1, "max": 2})
    Job.objects.filter(pk=endpoint.job_id).update(cap_usd_micros=lease.cap_units)
    version = endpoint.versions.get()
    placed = observe_now(endpoint).placed
    assert replica_placement.place_replicas(endpoint, version, 1, placed=placed) == 0
    assert waits_for(endpoint) == "The budget is spoken for by the replicas that there are."


def observe_now(endpoint: Endpoint) -> observe.Observation:
    found = observe.observe_endpoint(endpoint, clock.now())
    assert found is not None
    return found


def test_replicas_of_a_version_that_ended_are_drained_and_not_replaced(alice: Organisation, bob: Node) -> None:
    _, endpoint, _ = up(alice)
    put_in_state(EndpointVersion.objects.filter(endpoint=endpoint), VersionState.RETIRED)
    assert observe.observe_endpoint(endpoint, clock.now()) is None
    gateway_reports()
    tick()
    assert states(endpoint) == ["draining"]
    tick()
    assert states(endpoint) == ["draining"]


def test_a_replica_whose_node_leaves_is_replaced_before_it_goes(alice: Organisation, bob: Node, carol: Node) -> None:
    _, endpoint, [lease] = up(alice)
    put_in_state(Node.objects.filter(pk=lease.node_id), NodeState.DRAINING)
    assert observe_now(endpoint).unsound == {lease.attempt.replica.pk: "its node is leaving"}
    gateway_reports([lease])
    tick()
    first, second = bring_up(endpoint)
    assert first.pk == lease.pk
    assert second.node_id != lease.node_id


def test_a_window_that_cannot_be_refilled_keeps_what_it_holds(alice: Organisation, bob: Node) -> None:
    endpoint = scenes.endpoint(alice)
    payments.open_window(endpoint.job)
    lease = scenes.run(endpoint.job, endpoint, bob)
    scenes.let_pass(lease, hours=1.2)
    freeze(alice)
    assert prepaid_windows.refill_window(endpoint.job_id), "it has enough for a while"
    assert amounts.held_units(endpoint.job) == 2 * DOLLAR
    lease.refresh_from_db()
    assert lease.stop_reason == ""
    Account.objects.update(is_frozen=False)
    assert prepaid_windows.refill_window(endpoint.job_id)
    assert amounts.held_units(endpoint.job) > 2 * DOLLAR
