"""An organisation, and a client with its key."""

from __future__ import annotations

from collections.abc import Sequence

from rest_framework.test import APIClient

from marketplace.accounts import api_keys
from marketplace.accounts.models import Membership, Organisation, Role, User


def organisation_with_client(name: str, scopes: Sequence[str] = ("billing:read",)) -> tuple[Organisation, APIClient]:
    user = User.objects.create_user(f"{name}@example.org")
    organisation = Organisation.objects.create(name=name)
    Membership.objects.create(user=user, organisation=organisation, role=Role.OWNER)
    _, key = api_keys.issue(user=user, organisation=organisation, name="test", scopes=scopes)
    return organisation, APIClient(headers={"authorization": f"Bearer {key}"})
