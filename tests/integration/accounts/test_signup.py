"""Who may make an account: the operator's switch decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from marketplace.accounts import organisations
from marketplace.accounts.models import Invitation, Membership, SitePolicy, User
from marketplace.foundation import clock
from tests.integration.racing import race
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db


def switch(policy: str) -> None:
    SitePolicy.objects.update_or_create(pk=1, defaults={"signup": policy})


def sign_up(email: str = "alice@example.org", **more: Any) -> Any:
    return APIClient().post("/api/v1/signup", {"email": email, "password": PASSWORD, **more}, format="json")


def test_anybody_signs_up_where_it_is_open_and_owns_an_organisation() -> None:
    switch("open")
    response = sign_up("Alice@Example.org", name="Alice", organisation="Alice's lab")
    assert response.status_code == 201
    assert response.json()["user"]["email"] == "alice@example.org"
    assert (response.json()["organisation"]["name"], response.json()["role"]) == ("Alice's lab", "owner")


def test_nobody_signs_up_where_it_is_closed_not_even_the_invited() -> None:
    _, invitation = organisations.invite(None, email="alice@example.org")
    switch("closed")
    response = sign_up(invitation=invitation)
    assert (response.status_code, response.json()["code"]) == (403, "signup_closed")


def test_by_default_one_must_be_invited() -> None:
    assert sign_up().json()["code"] == "invitation_refused"
    _, invitation = organisations.invite(None, email="alice@example.org")
    assert sign_up(invitation=invitation).status_code == 201


def test_the_invited_joins_the_inviting_organisation(alice: Membership) -> None:
    _, invitation = organisations.invite(alice.organisation, email="bob@example.org", role="billing")
    response = sign_up("bob@example.org", invitation=invitation)
    assert (response.json()["organisation"]["id"], response.json()["role"]) == (str(alice.organisation_id), "billing")


def test_an_invitation_is_for_one_address_only() -> None:
    _, invitation = organisations.invite(None, email="alice@example.org")
    assert sign_up("mallory@example.org", invitation=invitation).status_code == 403
    assert sign_up("alice@example.org", invitation=invitation).status_code == 201


def test_an_invitation_expires() -> None:
    _, invitation = organisations.invite(None, email="alice@example.org")
    Invitation.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    assert sign_up(invitation=invitation).status_code == 403


@pytest.mark.parametrize("email", ["alice@example.org", "ALICE@example.org"])
def test_one_address_is_one_account(alice: Membership, email: str) -> None:
    switch("open")
    assert sign_up(email).json()["code"] == "email_taken"


@pytest.mark.parametrize("password", ["short", "password123", "12345678901", "alice@example.org"])
def test_a_weak_password_is_refused(password: str) -> None:
    switch("open")
    response = sign_up(password=password)
    assert (response.status_code, response.json()["code"]) == (400, "weak_password")
    assert not User.objects.exists()


@pytest.mark.parametrize("field", ["is_staff", "is_superuser", "role", "id"])
def test_nobody_makes_themselves_more_by_an_extra_field(field: str) -> None:
    switch("open")
    body: dict[str, Any] = {field: True}
    response = sign_up(**body)
    assert response.status_code == 400
    assert field in response.json()["details"]["fields"]


@pytest.mark.django_db(transaction=True)
def test_two_at_once_with_one_address_make_one_account() -> None:
    switch("open")
    answers = race(sign_up, sign_up)
    assert sorted(getattr(answer, "status_code", 0) for answer in answers) == [201, 409]
    assert User.objects.count() == 1
