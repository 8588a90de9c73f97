"""A token and two proven keys make one node."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from marketplace.accounts.models import Membership
from marketplace.foundation import clock, signing
from marketplace.foundation.models import Event
from marketplace.nodes.errors import AlreadyEnrolled, BadFacts, EnrolmentRefused, ProofRefused, UnsupportedProtocol
from marketplace.nodes.inventory import devices as inventory
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Device, EnrolmentToken, Node, Offer, Provider
from provider_agent.protocol import DeviceFacts, EnrolResponse
from tests.integration.nodes.agent import DOLLAR, Agent, device, facts, terms
from tests.integration.nodes.conftest import found, provider_of
from tests.integration.racing import race

pytestmark = pytest.mark.django_db


def token_of(provider: Provider) -> str:
    return enrolment.issue_token(provider, actor="test")[1]


def test_an_agent_enrols_through_the_api(provider: Provider, agent: Agent) -> None:
    request = agent.enrol_request(token_of(provider))
    answer = Client().post("/api/agent/v1/enrol", request.model_dump_json(), content_type="application/json")
    assert answer.status_code == 201, answer.content
    response = EnrolResponse.model_validate_json(answer.content)
    assert response.server_public_key == signing.server_public_key_hex()
    node = Node.objects.get(pk=response.node_id)
    assert (node.state, node.provider, node.region) == ("pending", provider, "eu-west")
    assert node.receipt_address == agent.receipt.address
    assert node.devices.get().model == "NVIDIA H100"
    assert node.offers.get().price_usd_micros_per_device_hour == 2 * DOLLAR
    assert Event.objects.get(subject_id=node.pk).to_state == "pending"


def test_the_token_is_kept_only_as_a_hash(provider: Provider) -> None:
    plaintext = token_of(provider)
    assert plaintext not in str(EnrolmentToken.objects.values().get())
    assert EnrolmentToken.objects.get().expires_at - clock.now() <= timedelta(hours=1)


def test_a_token_enrols_one_node(provider: Provider) -> None:
    token = token_of(provider)
    enrolment.enrol(Agent().enrol_request(token))
    with pytest.raises(EnrolmentRefused):
        enrolment.enrol(Agent().enrol_request(token, facts=facts(device("GPU-2"))))


def test_an_agent_whose_answer_was_lost_asks_again_and_is_the_same_node(provider: Provider, agent: Agent) -> None:
    request = agent.enrol_request(token_of(provider))
    assert enrolment.enrol(request).pk == enrolment.enrol(request).pk
    assert Node.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_agents_that_race_with_one_token_one_enrols() -> None:
    token = token_of(provider_of(found("bob")))
    requests = [Agent().enrol_request(token, facts=facts(device(f"GPU-{number}"))) for number in range(4)]
    outcomes = race(*[functools.partial(enrolment.enrol, request) for request in requests])
    assert sum(isinstance(outcome, Node) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, EnrolmentRefused) for outcome in outcomes) == 3
    assert (Node.objects.count(), Device.objects.count(), Offer.objects.count()) == (1, 1, 1)


def test_expired_and_unknown_tokens_are_refused_alike(provider: Provider, agent: Agent) -> None:
    expired = token_of(provider)
    EnrolmentToken.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    for token in (expired, "soukn_" + "x" * 43):
        with pytest.raises(EnrolmentRefused):
            enrolment.enrol(agent.enrol_request(token))


@pytest.mark.parametrize(
    "change",
    [
        {"transport_public_key": Agent().transport_public_key},
        {"receipt_address": Agent().receipt.address},
        {"proof": "AAAA"},
        {"proof": "not base64"},
        {"receipt_proof": "0x" + "11" * 65},
        {"receipt_proof": "nonsense"},
        {"receipt_proof": ""},
    ],
)
def test_mallory_enrols_no_key_that_she_does_not_hold(provider: Provider, agent: Agent, change: dict[str, Any]) -> None:
    token = token_of(provider)
    with pytest.raises(ProofRefused):
        enrolment.enrol(agent.enrol_request(token, **change))
    enrolment.enrol(agent.enrol_request(token))  # what failed did not use the token up


def test_a_proof_is_for_one_token(provider: Provider, agent: Agent) -> None:
    first, second = token_of(provider), token_of(provider)
    with pytest.raises(ProofRefused):
        enrolment.enrol(agent.enrol_request(first).model_copy(update={"token": second}))


def test_a_protocol_version_that_we_do_not_know_is_refused(provider: Provider, agent: Agent) -> None:
    with pytest.raises(UnsupportedProtocol) as caught:
        enrolment.enrol(agent.enrol_request(token_of(provider), protocol=99))
    assert caught.value.details["spoken"]


def test_a_key_enrols_once_and_the_token_survives_the_refusal(provider: Provider, agent: Agent) -> None:
    agent.enrol(provider)
    token = token_of(provider)
    with pytest.raises(AlreadyEnrolled):
        enrolment.enrol(agent.enrol_request(token, facts=facts(device("GPU-2"))))
    enrolment.enrol(Agent().enrol_request(token, facts=facts(device("GPU-2"))))


def test_a_gpu_is_sold_once(provider: Provider, mallory: Membership) -> None:
    Agent().enrol(provider)
    with pytest.raises(AlreadyEnrolled) as caught:
        Agent().enrol(provider_of(mallory))
    assert caught.value.details["device_uuids"] == ["GPU-1"]


@pytest.mark.django_db(transaction=True)
def test_of_two_nodes_that_race_with_one_gpu_one_enrols() -> None:
    provider = provider_of(found("bob"))
    requests = [Agent().enrol_request(token_of(provider)) for _ in range(3)]
    outcomes = race(*[functools.partial(enrolment.enrol, request) for request in requests])
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyEnrolled", "AlreadyEnrolled", "Node"]


def card(*, fault: str = "") -> DeviceFacts:
    return device().model_copy(update={"details": {"serial": "1234"}, "fault": fault})


def renamed(gpu: DeviceFacts) -> DeviceFacts:
    """The same board under another UUID."""
    return gpu.model_copy(update={"uuid": "GPU-renamed"})


@pytest.mark.parametrize("how", ["fault", "gone"])
def test_a_faulty_gpu_stays_its_nodes_whoever_else_reports_it(provider: Provider, mallory: Membership, how: str):
    bobs = Agent().enrol(provider, facts=facts(card(), device("GPU-2", index=1)))
    left = [card(fault="fell off the bus")] if how == "fault" else []
    inventory.update_facts(bobs, facts(*left, device("GPU-2", index=1)))
    assert not bobs.devices.get(uuid="GPU-1").is_healthy
    for shown in (card(), renamed(card())):
        with pytest.raises(AlreadyEnrolled):
            Agent().enrol(provider_of(mallory), facts=facts(shown))
    inventory.update_facts(bobs, facts(card(), device("GPU-2", index=1)))
    assert bobs.devices.get(uuid="GPU-1").is_healthy, "it is rented out again once it is well"


def test_a_provider_moves_a_card_to_another_node_of_its_own(provider: Provider) -> None:
    first = Agent().enrol(provider, facts=facts(card(), device("GPU-2", index=1)))
    inventory.update_facts(first, facts(device("GPU-2", index=1)))
    assert Agent().enrol(provider, facts=facts(card())).devices.get().is_healthy
    inventory.update_facts(first, facts(card(), device("GPU-2", index=1)))
    assert not first.devices.get(uuid="GPU-1").is_healthy


def test_a_gpu_that_never_worked_here_is_claimed_by_nobody(provider: Provider, mallory: Membership) -> None:
    Agent().enrol(provider_of(mallory), facts=facts(card(fault="broken, she says")))
    assert Agent().enrol(provider, facts=facts(card())).devices.get().is_healthy


def test_a_retired_node_claims_its_gpu_not_again(provider: Provider, mallory: Membership) -> None:
    """A process may believe its agent for ten seconds more, which is enough to keep the card for ever."""
    squatter = Agent().enrol(provider_of(mallory), facts=facts(card()))
    late = Node.objects.get(pk=squatter.pk)
    enrolment.retire(squatter)
    inventory.update_facts(late, facts(card()))
    assert Agent().enrol(provider, facts=facts(card())).devices.get().is_healthy


def test_a_retired_nodes_gpu_may_be_enrolled_again(provider: Provider) -> None:
    first = Agent().enrol(provider)
    enrolment.retire(first)
    enrolment.retire(first)  # harmless
    assert Agent().enrol(provider).pk != first.pk
    assert not first.offers.filter(is_open=True).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"facts": facts(device("GPU-1"), device("GPU-1", index=1))},
        {"offer": terms(seconds_min=100, seconds_max=50)},
        {"fabric": "rack", "fabric_address": "not-an-address"},
        {"fabric": "rack", "fabric_address": "fe80::1%eth0"},
        {"fabric": "ra\x00ck"},
        {"facts": facts(device(model="H100\x00"))},
    ],
)
def test_facts_that_cannot_be_are_refused(provider: Provider, agent: Agent, change: dict[str, Any]) -> None:
    with pytest.raises(BadFacts):
        agent.enrol(provider, **change)
    assert not Node.objects.exists()


def test_an_unknown_field_and_broken_json_are_refused(provider: Provider, agent: Agent) -> None:
    request = agent.enrol_request(token_of(provider)).model_dump(mode="json")
    for body in ({**request, "is_verified": True}, "{", {}):
        answer = Client().post("/api/agent/v1/enrol", body, content_type="application/json")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
