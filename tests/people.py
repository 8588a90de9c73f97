"""People in organisations, operators, and clients that hold a key of theirs."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from rest_framework.test import APIClient

from marketplace.accounts import api_keys
from marketplace.accounts.models import Membership, User
from marketplace.accounts.scopes import ROLE_SCOPES
from marketplace.foundation import clock
from tests.row_states import past_the_triggers

PASSWORD = "correct horse battery"


def join(owner: Membership, name: str, role: str) -> Membership:
    """A new user with a role in the owner's organisation."""
    user = User.objects.create_user(f"{name}@example.org", PASSWORD)
    return Membership.objects.create(organisation=owner.organisation, user=user, role=role)


def operator(name: str) -> User:
    """One who has been an operator for a month."""
    made = User.objects.create_superuser(f"{name}@example.org", PASSWORD)
    with past_the_triggers("accounts_user"):
        User.objects.filter(pk=made.pk).update(staff_since=clock.now() - timedelta(days=30))
    made.refresh_from_db()
    return made


def sign(membership: Membership, scopes: Collection[str] | None = None) -> APIClient:
    """A client with a new key of this member: with all that the role may do, or with less."""
    scopes = ROLE_SCOPES[membership.role] if scopes is None else scopes
    _, plaintext = api_keys.issue(
        user=membership.user, organisation=membership.organisation, name="test", scopes=scopes
    )
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {plaintext}")
    return client
