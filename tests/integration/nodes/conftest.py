"""Bob provides, with one node; Alice buys; Mallory provides too, and lies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from marketplace.accounts import organisations
from marketplace.accounts.models import Membership, Role, User
from marketplace.nodes.models import Node, Provider
from marketplace.nodes.watching import liveness
from tests.integration.nodes.agent import Agent, bring_online
from tests.people import join


@pytest.fixture(autouse=True)
def no_beats() -> Iterator[None]:
    yield
    liveness._client(settings.REDIS_URL).delete(liveness.BEATS_KEY)


def found(name: str) -> Membership:
    """A user and the organisation that they own."""
    return organisations.create(User.objects.create_user(f"{name}@example.org"), name)


def provider_of(membership: Membership) -> Provider:
    """The organisation's selling side."""
    name = membership.organisation.name
    return Provider.objects.get_or_create(organisation=membership.organisation, defaults={"display_name": name})[0]


@pytest.fixture
def alice(db: None) -> Membership:
    return found("alice")


@pytest.fixture
def bob(db: None) -> Membership:
    return found("bob")


@pytest.fixture
def billing_role(bob: Membership) -> Membership:
    return join(bob, "dave", Role.BILLING)


@pytest.fixture
def provider(bob: Membership) -> Provider:
    return provider_of(bob)


@pytest.fixture
def mallory(db: None) -> Membership:
    return found("mallory")


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def node(provider: Provider, agent: Agent) -> Node:
    """Bob's node, enrolled, measured and online."""
    return bring_online(agent.enrol(provider))
