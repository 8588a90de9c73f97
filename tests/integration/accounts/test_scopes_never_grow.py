"""Whatever a key does, nobody may do more afterwards than the key itself."""

from __future__ import annotations

from itertools import combinations

import pytest
from django.test import Client
from rest_framework.test import APIClient

from marketplace.accounts import organisations
from marketplace.accounts.models import Invitation, Membership, Organisation, Role, User
from marketplace.accounts.scopes import ROLE_SCOPES, Scope
from marketplace.foundation.models import IdempotencyKey
from tests.people import PASSWORD, join, sign

pytestmark = pytest.mark.django_db

SUBSETS = [frozenset(some) for size in (1, 2, len(Scope) - 1, len(Scope)) for some in combinations(sorted(Scope), size)]


def test_a_repeat_shows_no_secret_to_a_key_that_may_do_less(alice: Membership) -> None:
    body = {"name": "ci", "scopes": ["jobs:read"]}
    first = sign(alice).post("/api/v1/api-keys", body, format="json", HTTP_IDEMPOTENCY_KEY="k")
    lesser = sign(alice, ["jobs:read"])
    refused = lesser.post("/api/v1/api-keys", body, format="json", HTTP_IDEMPOTENCY_KEY="k")
    assert (refused.status_code, refused.json()["code"]) == (403, "idempotency_key_not_yours")
    assert first.json()["key"] not in refused.content.decode()


def test_a_repeat_by_another_key_that_may_do_as_much_is_answered(alice: Membership) -> None:
    body = {"name": "ci", "scopes": ["jobs:read"]}
    first = sign(alice).post("/api/v1/api-keys", body, format="json", HTTP_IDEMPOTENCY_KEY="k")
    again = sign(alice).post("/api/v1/api-keys", body, format="json", HTTP_IDEMPOTENCY_KEY="k")
    assert again.json() == first.json()


def test_an_answer_of_unknown_scopes_is_shown_to_nobody(alice: Membership) -> None:
    body = {"name": "ci", "scopes": ["jobs:read"]}
    sign(alice).post("/api/v1/api-keys", body, format="json", HTTP_IDEMPOTENCY_KEY="k")
    IdempotencyKey.objects.update(scopes=None)
    again = sign(alice).post("/api/v1/api-keys", body, format="json", HTTP_IDEMPOTENCY_KEY="k")
    assert again.status_code == 403


@pytest.mark.parametrize("role", Role.values)
def test_only_a_key_with_all_of_a_roles_scopes_invites_to_it(alice: Membership, role: str) -> None:
    for number, scopes in enumerate(SUBSETS):
        body = {"email": f"m{number}@example.org", "role": role}
        answer = sign(alice, scopes).post("/api/v1/invitations", body, format="json")
        is_allowed = Scope.ACCOUNT_ADMIN in scopes and ROLE_SCOPES[role] <= scopes
        assert answer.status_code == (201 if is_allowed else 403), scopes
    assert set(Invitation.objects.values_list("role", flat=True)) == {role}


def test_only_a_key_with_all_of_a_roles_scopes_gives_it_to_a_member(alice: Membership, carol: Membership) -> None:
    path = f"/api/v1/members/{carol.user_id}"
    refused = sign(alice, ["account:admin"]).patch(path, {"role": "owner"}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "role_not_yours")
    carol.refresh_from_db()
    assert carol.role == Role.MEMBER
    assert sign(alice).patch(path, {"role": "owner"}, format="json").status_code == 200


def test_a_narrow_key_makes_no_organisation(alice: Membership) -> None:
    before = Organisation.objects.count()
    refused = sign(alice, ["jobs:read"]).post("/api/v1/organisations", {"name": "x"}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "key_too_narrow")
    assert Organisation.objects.count() == before
    assert sign(alice).post("/api/v1/organisations", {"name": "x"}, format="json").status_code == 201


def test_a_narrow_key_joins_no_organisation(alice: Membership, bob: Membership) -> None:
    carol = join(alice, "carol", Role.MEMBER)
    _, text = organisations.invite(bob.organisation, email="carol@example.org")
    narrow = sign(carol, ["jobs:read"]).post("/api/v1/invitations/accept", {"token": text}, format="json")
    assert narrow.status_code == 403
    whole = sign(carol).post("/api/v1/invitations/accept", {"token": text}, format="json")  # all that a member may
    assert whole.status_code == 201


def test_who_is_in_no_organisation_makes_one_in_a_session(db: None) -> None:
    browser: Client = APIClient()
    browser.force_login(User.objects.create_user("new@example.org", PASSWORD))
    assert browser.post("/api/v1/organisations", {"name": "mine"}, format="json").status_code == 201


def test_a_key_for_members_takes_no_owner_away(alice: Membership, carol: Membership) -> None:
    erin = join(alice, "erin", Role.OWNER)
    narrow = sign(alice, ["account:admin", "billing:read", "billing:write"])
    for refused in (
        narrow.delete(f"/api/v1/members/{erin.user_id}"),
        narrow.patch(f"/api/v1/members/{erin.user_id}", {"role": "billing"}, format="json"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "owner_not_yours")
    erin.refresh_from_db()
    assert erin.role == Role.OWNER
    assert narrow.delete(f"/api/v1/members/{carol.user_id}").status_code == 204
    assert sign(alice).delete(f"/api/v1/members/{erin.user_id}").status_code == 204
    assert sign(alice).delete(f"/api/v1/members/{alice.user_id}").json()["code"] == "last_owner"
