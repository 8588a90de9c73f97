"""Bob provides, with one node; Alice buys; Mallory provides too, and lies."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest
from django.conf import settings
from rest_framework.test import APIClient

from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import Membership, Role, User
from marketplace.accounts.scopes import ROLE_SCOPES
from marketplace.nodes import liveness
from marketplace.nodes.models import Node, Provider
from tests.integration.nodes.agent import Agent, bring_online


@pytest.fixture(autouse=True)
def no_beats() -> Iterator[None]:
    yield
    liveness._client(settings.REDIS_URL).delete(liveness.BEATS_KEY)


def found(name: str) -> Membership:
    """A user and the organisation that they own."""
    return organisations.create(User.objects.create_user(f"{name}@example.org"), name)


def join(owner: Membership, name: str, role: str) -> Membership:
    """A new user with a role in the owner's organisation."""
    user = User.objects.create_user(f"{name}@example.org")
    return Membership.objects.create(organisation=owner.organisation, user=user, role=role)


def sign(membership: Membership, scopes: Collection[str] | None = None) -> APIClient:
    """A client with a new key of this member."""
    scopes = ROLE_SCOPES[membership.role] if scopes is None else scopes
    _, plaintext = api_keys.issue(
        user=membership.user, organisation=membership.organisation, name="test", scopes=scopes
    )
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {plaintext}")
    return client


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
