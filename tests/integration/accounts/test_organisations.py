"""Members come by invitation, and one owner always stays."""

from __future__ import annotations

import functools

import pytest
from rest_framework.test import APIClient

from marketplace.accounts import organisations
from marketplace.accounts.errors import AlreadyMember, InvitationRefused, LastOwner, TooManyOrganisations
from marketplace.accounts.models import Membership, Role
from tests.integration.accounts.conftest import found
from tests.integration.racing import race
from tests.people import PASSWORD, join, sign

pytestmark = pytest.mark.django_db


def test_bob_accepts_alices_invitation(alice: Membership, bob: Membership) -> None:
    body = {"email": "Bob@example.org", "role": "member"}
    made = sign(alice).post("/api/v1/invitations", body, format="json").json()
    accepted = sign(bob).post("/api/v1/invitations/accept", {"token": made["token"]}, format="json")
    assert accepted.status_code == 201
    assert accepted.json()["organisation"]["id"] == str(alice.organisation_id)
    again = sign(bob).post("/api/v1/invitations/accept", {"token": made["token"]}, format="json")
    assert again.json()["code"] == "invitation_refused"


def test_mallory_cannot_use_bobs_invitation(alice: Membership, mallory: Membership) -> None:
    _, plaintext = organisations.invite(alice.organisation, email="bob@example.org")
    with pytest.raises(InvitationRefused):
        organisations.accept(mallory.user, plaintext)


def test_a_withdrawn_invitation_is_refused(alice: Membership, bob: Membership) -> None:
    invitation, plaintext = organisations.invite(alice.organisation, email="bob@example.org")
    assert sign(alice).delete(f"/api/v1/invitations/{invitation.pk}").status_code == 204
    with pytest.raises(InvitationRefused):
        organisations.accept(bob.user, plaintext)


def test_a_member_is_not_invited_again(alice: Membership, carol: Membership) -> None:
    with pytest.raises(AlreadyMember):
        organisations.invite(alice.organisation, email="carol@example.org")


def test_the_last_owner_stays_and_stays_owner(alice: Membership) -> None:
    with pytest.raises(LastOwner):
        organisations.remove(alice.organisation, alice.user_id)
    with pytest.raises(LastOwner):
        organisations.change_role(alice.organisation, alice.user_id, Role.MEMBER)


@pytest.mark.parametrize("is_removed", [True, False])
def test_who_is_owner_no_more_comes_back_by_no_own_invitation(
    alice: Membership, bob: Membership, is_removed: bool
) -> None:
    erin = join(alice, "erin", Role.OWNER)
    _, plaintext = organisations.invite(
        alice.organisation, email="bob@example.org", role=Role.OWNER, invited_by=erin.user
    )
    if is_removed:
        organisations.remove(alice.organisation, erin.user_id)
    else:
        organisations.change_role(alice.organisation, erin.user_id, Role.MEMBER)
    with pytest.raises(InvitationRefused):
        organisations.accept(bob.user, plaintext)


def test_one_user_owns_so_many_organisations_however_they_come(
    alice: Membership, bob: Membership, carol: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(organisations, "OWNED_MAX", 1)
    with pytest.raises(TooManyOrganisations):
        organisations.create(bob.user, "second")
    _, plaintext = organisations.invite(alice.organisation, email="bob@example.org", role=Role.OWNER)
    with pytest.raises(TooManyOrganisations):
        organisations.accept(bob.user, plaintext)
    Membership.objects.create(organisation=bob.organisation, user=carol.user, role=Role.OWNER)
    with pytest.raises(TooManyOrganisations):
        organisations.change_role(alice.organisation, carol.user_id, Role.OWNER)


@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_leave_at_once_one_stays() -> None:
    alice = found("alice")
    bob = join(alice, "bob", Role.OWNER)
    leave = [functools.partial(organisations.remove, alice.organisation, one.user_id) for one in (alice, bob)]
    outcomes = race(*leave)
    assert {type(outcome) for outcome in outcomes} == {type(None), LastOwner}
    assert Membership.objects.filter(organisation=alice.organisation, role=Role.OWNER).count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_invitation_is_accepted_once() -> None:
    alice, bob = found("alice"), found("bob")
    _, plaintext = organisations.invite(alice.organisation, email="bob@example.org")
    outcomes = race(*[lambda: organisations.accept(bob.user, plaintext)] * 3)
    assert sum(isinstance(outcome, Membership) for outcome in outcomes) == 1


def test_mallory_reaches_nobody_in_alices_organisation(
    alice: Membership, carol: Membership, mallory: Membership
) -> None:
    client = sign(mallory)
    assert client.patch(f"/api/v1/members/{carol.user_id}", {"role": "owner"}, format="json").status_code == 404
    assert client.delete(f"/api/v1/members/{carol.user_id}").status_code == 404
    assert "carol" not in client.get("/api/v1/members").content.decode()
    invitation, _ = organisations.invite(alice.organisation, email="x@example.org")
    assert client.delete(f"/api/v1/invitations/{invitation.pk}").status_code == 404


def test_the_portals_session_acts_for_the_only_organisation_or_the_named_one(
    alice: Membership, bob: Membership
) -> None:
    client = APIClient()
    client.login(username="alice@example.org", password=PASSWORD)
    assert client.get("/api/v1/members").status_code == 200
    second = organisations.create(alice.user, "second")
    assert client.get("/api/v1/members").json()["code"] == "organisation_required"
    named = client.get("/api/v1/me", HTTP_SOUK_ORGANISATION=str(second.organisation_id)).json()
    assert named["organisation"]["name"] == "second"
    for foreign in (str(bob.organisation_id), "no-uuid"):
        assert client.get("/api/v1/me", HTTP_SOUK_ORGANISATION=foreign).json()["code"] == "not_a_member"


def test_a_session_without_its_csrf_token_changes_nothing(alice: Membership) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.login(username="alice@example.org", password=PASSWORD)
    response = client.post("/api/v1/organisations", {"name": "forged"}, format="json")
    assert response.status_code == 403
    assert not alice.user.memberships.filter(organisation__name="forged").exists()
