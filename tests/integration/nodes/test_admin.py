"""The operator's pages of supply open, and their verbs work."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from marketplace.accounts.models import User
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node, Provider
from tests.integration.nodes.agent import Agent, device, facts

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@example.org"))
    return client


@pytest.mark.parametrize("model", ["provider", "enrolmenttoken", "node", "device", "offer"])
def test_every_list_opens(operator: Client, node: Node, model: str) -> None:
    assert operator.get(f"/admin/nodes/{model}/").status_code == 200


@pytest.mark.parametrize("model", ["event", "idempotencykey", "outboxmessage"])
def test_the_lists_of_the_foundation_open(operator: Client, node: Node, model: str) -> None:
    assert operator.get(f"/admin/foundation/{model}/").status_code == 200


def test_a_nodes_page_opens(operator: Client, node: Node) -> None:
    assert operator.get(f"/admin/nodes/node/{node.pk}/change/").status_code == 200


def test_the_operator_drains_quarantines_releases_and_retires(operator: Client, node: Node) -> None:
    states = []
    for verb in ("drain", "resume", "quarantine", "release", "retire"):
        operator.post("/admin/nodes/node/", {"action": verb, "_selected_action": [str(node.pk)]})
        states.append(Node.objects.get(pk=node.pk).state)
    assert states == ["draining", "online", "quarantined", "online", "retired"]


def test_a_verb_that_does_not_fit_says_so(operator: Client, node: Node) -> None:
    chosen = {"action": "release", "_selected_action": [str(node.pk)]}
    page = operator.post("/admin/nodes/node/", chosen, follow=True).content.decode()
    assert "cannot go to online: it is online" in page


def test_the_operator_issues_a_token(operator: Client, provider: Provider) -> None:
    chosen = {"action": "issue_token", "_selected_action": [str(provider.pk)]}
    page = operator.post("/admin/nodes/provider/", chosen, follow=True).content.decode()
    (token,) = re.findall(r"/install.sh \| sh -s -- --token (soukn_[\w-]{43})", page)
    assert enrolment.enrol(Agent().enrol_request(token, facts=facts(device("GPU-9")))).provider == provider
