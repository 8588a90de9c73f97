"""A password for a key."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core.cache import cache
from rest_framework.test import APIClient

from marketplace.accounts import organisations
from marketplace.accounts.models import Membership
from marketplace.foundation.throttles import ScopedThrottle
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db


def log_in(email: str = "alice@example.org", password: str = PASSWORD, **more: Any) -> Any:
    body = {"email": email, "password": password, **more}
    return APIClient().post("/api/v1/login", body, format="json", HTTP_USER_AGENT="souk/0.1 alices-laptop")


def test_alice_logs_in_and_her_key_works(alice: Membership) -> None:
    response = log_in(email="ALICE@example.org")
    assert response.status_code == 201
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {response.json()['key']}")
    me = client.get("/api/v1/me").json()
    assert me["user"]["email"] == "alice@example.org"
    assert (me["organisation"]["id"], me["role"]) == (str(alice.organisation_id), "owner")
    assert sorted(response.json()["scopes"]) == me["scopes"]
    assert alice.user.api_keys.get().name == "souk/0.1 alices-laptop"


def test_logging_out_revokes_the_key(alice: Membership) -> None:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {log_in().json()['key']}")
    assert client.post("/api/v1/logout").status_code == 204
    assert client.get("/api/v1/me").status_code == 401


def test_unknown_address_wrong_password_and_inactive_user_get_one_answer(alice: Membership, bob: Membership) -> None:
    bob.user.is_active = False
    bob.user.save()
    answers = [log_in("nobody@example.org"), log_in(password="wrong password"), log_in("bob@example.org")]
    assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}


def test_the_password_is_hashed_for_an_unknown_address_too(alice: Membership) -> None:
    with patch.object(MD5PasswordHasher, "encode", autospec=True, side_effect=MD5PasswordHasher.encode) as encode:
        log_in(password="wrong password")
        for_alice, encode.call_count = encode.call_count, 0
        log_in("nobody@example.org", password="wrong password")
        assert encode.call_count == for_alice == 1


def test_who_has_two_organisations_says_which(alice: Membership) -> None:
    second = organisations.create(alice.user, "second")
    response = log_in()
    assert (response.status_code, response.json()["code"]) == (400, "organisation_required")
    assert str(second.organisation_id) in response.json()["message"]
    assert log_in(organisation="second").json()["organisation"]["id"] == str(second.organisation_id)
    assert log_in(organisation=str(alice.organisation_id)).status_code == 201


def test_nobody_logs_in_to_an_organisation_of_others(alice: Membership, bob: Membership) -> None:
    assert log_in(organisation=str(bob.organisation_id)).json()["code"] == "not_a_member"


def test_sign_in_is_throttled(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "2/min"})
    assert [log_in(password="wrong").status_code for _ in range(3)] == [401, 401, 429]
