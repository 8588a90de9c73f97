"""Alice owns an organisation, Bob another; Mallory is nobody's member. Doors are tried with real keys."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from rest_framework.test import APIClient

from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import Membership, Role, User
from marketplace.accounts.scopes import ROLE_SCOPES

PASSWORD = "correct horse battery"


def sign(membership: Membership, scopes: Collection[str] | None = None) -> APIClient:
    """A client with a new key of this member: with all that the role may do, or with less."""
    client = APIClient()
    _, plaintext = api_keys.issue(
        user=membership.user,
        organisation=membership.organisation,
        name="test",
        scopes=ROLE_SCOPES[membership.role] if scopes is None else scopes,
    )
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {plaintext}")
    return client


def found(name: str) -> Membership:
    """A user and the organisation that they own."""
    user = User.objects.create_user(f"{name}@example.org", PASSWORD, name=name.title())
    return organisations.create(user, f"{name}'s")


def join(owner: Membership, name: str, role: str) -> Membership:
    """A new user with a role in the owner's organisation."""
    user = User.objects.create_user(f"{name}@example.org", PASSWORD)
    return Membership.objects.create(organisation=owner.organisation, user=user, role=role)


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
