"""A view's scopes: one to read, one for everything else, and nothing is done for who has not proven an address."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from marketplace.accounts.models import Membership
from tests.people import sign

pytestmark = pytest.mark.django_db

JOBS = "/api/v1/jobs"  # read with jobs:read, written with jobs:write


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        (["jobs:read"], {"get": 200, "head": 200, "options": 200, "post": 403}),
        (["jobs:write"], {"get": 403, "head": 403, "options": 403, "post": 400}),
        (["jobs:read", "jobs:write"], {"get": 200, "post": 400}),
        (["billing:read"], {"get": 403, "post": 403}),
    ],
)
def test_reading_and_writing_have_a_scope_each(alice: Membership, scopes: list[str], expected: dict[str, int]) -> None:
    client = sign(alice, scopes)
    answers = {method: getattr(client, method)(JOBS, format="json") for method in expected}
    assert {method: answer.status_code for method, answer in answers.items()} == expected
    lacking = {
        answer.json()["details"]["scope"] for answer in answers.values() if answer.content and _is_refused(answer)
    }
    assert lacking == {"jobs:read", "jobs:write"} - set(scopes), "each refusal names the scope"


def test_who_is_nobody_needs_a_sign_in_and_no_scope() -> None:
    assert [getattr(APIClient(), method)(JOBS).status_code for method in ("get", "post")] == [401, 401]


def test_nothing_is_done_for_an_address_that_is_not_proven(alice: Membership, settings: Any) -> None:
    settings.SOUK_EMAIL_VERIFICATION = "required"
    client = sign(alice)
    alice.user.verified_at = None
    alice.user.save()
    assert client.get(JOBS).status_code == 200
    refused = client.post(JOBS, {}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "email_unverified")


def _is_refused(answer: Any) -> bool:
    return bool(answer.status_code == 403)
