"""Every route of this package, called by every role: a table, so that a gap is seen."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from marketplace.accounts.models import Membership
from marketplace.accounts.urls import urlpatterns
from tests.people import sign

pytestmark = pytest.mark.django_db

NOBODY = "00000000-0000-4000-8000-000000000000"  # the same in every process: it is part of tests' names
# method, path, then: owner, member, billing, a key without scopes, nobody. What an allowed request is answered
# differs (nothing exists, so 404; no body, so 400); a refused one is 403, an unknown caller 401.
MATRIX = [
    ("get", "me", "200 200 200 200 401"),
    ("post", "logout", "204 204 204 204 401"),
    ("get", "organisations", "200 200 200 200 401"),
    ("post", "organisations", "400 400 400 403 401"),
    ("get", "members", "200 403 403 403 401"),
    ("patch", f"members/{NOBODY}", "400 403 403 403 401"),
    ("delete", f"members/{NOBODY}", "404 403 403 403 401"),
    ("get", "invitations", "200 403 403 403 401"),
    ("post", "invitations", "400 403 403 403 401"),
    ("post", "invitations/accept", "400 400 400 403 401"),
    ("delete", f"invitations/{NOBODY}", "404 403 403 403 401"),
    ("get", "api-keys", "200 200 200 200 401"),
    ("post", "api-keys", "400 400 400 400 401"),
    ("delete", f"api-keys/{NOBODY}", "404 404 404 404 401"),
    ("post", f"api-keys/{NOBODY}/rotate", "404 404 404 404 401"),
    ("post", "signup", "400 400 400 400 400"),
    ("post", "login", "400 400 400 400 400"),
]


@pytest.mark.parametrize(("method", "path", "expected"), MATRIX)
def test_each_role_gets_what_the_table_says(
    alice: Membership, carol: Membership, dave: Membership, method: str, path: str, expected: str
) -> None:
    callers = [sign(alice), sign(carol), sign(dave), sign(alice, []), APIClient()]
    answers = [getattr(client, method)(f"/api/v1/{path}", {}, format="json") for client in callers]
    assert " ".join(str(answer.status_code) for answer in answers) == expected
    for answer in answers:
        if answer.status_code >= 400:
            assert set(answer.json()) == {"code", "message", "details"}


def test_the_table_names_every_route() -> None:
    in_table = {path.replace(NOBODY, "<id>") for _, path, _ in MATRIX}
    routes = {str(pattern.pattern) for pattern in urlpatterns}
    shape = {
        route[: route.index("<")] + "<id>" + route[route.index(">") + 1 :] if "<" in route else route
        for route in routes
    }
    assert in_table == shape
