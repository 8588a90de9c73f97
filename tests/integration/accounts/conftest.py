"""Alice owns an organisation, Bob another; Mallory is nobody's member. Endpoints are tried with real keys."""

from __future__ import annotations

import pytest

from marketplace.accounts import organisations
from marketplace.accounts.models import Membership, Role, User
from tests.people import PASSWORD, join


def found(name: str) -> Membership:
    """A user and the organisation that they own."""
    user = User.objects.create_user(f"{name}@example.org", PASSWORD, name=name.title())
    return organisations.create(user, f"{name}'s")


@pytest.fixture
def alice(db: None) -> Membership:
    return found("alice")


@pytest.fixture
def bob(db: None) -> Membership:
    return found("bob")


@pytest.fixture
def mallory(db: None) -> Membership:
    return found("mallory")


@pytest.fixture
def carol(alice: Membership) -> Membership:
    return join(alice, "carol", Role.MEMBER)


@pytest.fixture
def dave(alice: Membership) -> Membership:
    return join(alice, "dave", Role.BILLING)
