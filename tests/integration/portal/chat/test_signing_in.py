"""The sign-in page: the password opens the pages, and its redirect goes only to our own paths."""

from __future__ import annotations

import pytest
from django.test import Client

from marketplace.accounts.models import User
from marketplace.foundation.throttles import ScopedThrottle
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def carol(db: None) -> User:
    return User.objects.create_user("carol@example.org", PASSWORD)


def test_who_is_signed_out_is_sent_to_sign_in_and_back(client: Client, carol: User) -> None:
    sent = client.get("/chat/datasets")
    assert sent.headers["Location"] == "/signin?next=%2Fchat%2Fdatasets"
    form = client.get(sent.headers["Location"])
    assert 'value="/chat/datasets"' in form.content.decode()
    done = client.post("/signin", {"email": " Carol@Example.org", "password": PASSWORD, "next": "/chat/datasets"})
    assert (done.status_code, done.headers["Location"]) == (302, "/chat/datasets")
    assert client.get("/chat").status_code == 200
    assert client.post("/signout").status_code == 302
    assert client.get("/chat").status_code == 302


@pytest.mark.parametrize(
    "wanted", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_signing_in_leads_nowhere_else(client: Client, carol: User, wanted: str) -> None:
    done = client.post("/signin", {"email": carol.email, "password": PASSWORD, "next": wanted})
    assert done.headers["Location"] == "/chat"


def test_a_wrong_password_and_an_unknown_address_get_the_same_answer(client: Client, carol: User) -> None:
    answers = [
        client.post("/signin", {"email": email, "password": "wrong"}) for email in (carol.email, "nobody@example.org")
    ]
    assert [each.status_code for each in answers] == [403, 403]
    assert all("no account with this address and this password" in each.content.decode() for each in answers)


def test_the_third_attempt_of_a_minute_is_refused_where_two_are_allowed(
    client: Client, carol: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "2/min"})
    for _ in range(2):
        client.post("/signin", {"email": carol.email, "password": "wrong"})
    refused = client.post("/signin", {"email": carol.email, "password": PASSWORD})
    assert refused.status_code == 429
    assert client.get("/chat").status_code == 302


def test_a_forged_sign_in_is_refused(carol: User) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post("/signin", {"email": carol.email, "password": PASSWORD}).status_code == 403
