"""/signup: an account from a browser, at once or by the mailed link, as the operator wants it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.test import Client
from pytest_django import Settings

from billing import dispatch
from marketplace.accounts.models import Membership, SitePolicy, User
from marketplace.foundation.throttles import ScopedThrottle
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db

ATTACK = '"><script>alert(1)</script>'


@pytest.fixture(autouse=True)
def is_open(db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SOUK_EMAIL_VERIFICATION = "off"
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "10000/min"})
    SitePolicy.objects.update_or_create(pk=1, defaults={"signup": "open"})


def sign_up(client: Client, **changes: str) -> Any:
    return client.post("/signup", {"email": "alice@example.org", "password": PASSWORD} | changes)


def test_an_account_is_made_and_signed_in(client: Client) -> None:
    assert sign_up(client, organisation="Alice's lab").headers["Location"] == "/jobs"
    made = Membership.objects.get()
    assert (made.user.email, made.organisation.name, made.role) == ("alice@example.org", "Alice's lab", "owner")
    assert b"Alice&#x27;s lab" in client.get("/jobs").content


def test_where_addresses_are_verified_the_mail_comes_first(client: Client, settings: Settings) -> None:
    settings.SOUK_EMAIL_VERIFICATION = "required"
    answer = sign_up(client)
    assert answer.status_code == 200 and b"A mail is on its way" in answer.content
    assert not User.objects.exists()
    User.objects.create_user("bob@example.org", PASSWORD)
    same = sign_up(client, email="bob@example.org")
    assert same.content.replace(b"bob@", b"alice@") == answer.content, "it tells nobody who has an account"
    dispatch.dispatch_due()
    assert len(mail.outbox) == 2


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"email": "nonsense"}, 400),
        ({"email": ""}, 400),
        ({"password": "12345678"}, 400),
        ({"password": ""}, 400),
        ({"name": "x" * 121}, 400),
        ({"invitation": "nonsense"}, 400),
        ({"email": ATTACK}, 400),
    ],
)
def test_what_is_wrong_is_said_and_nothing_made(client: Client, changes: dict[str, str], status: int) -> None:
    answer = sign_up(client, **changes)
    assert answer.status_code >= 400
    assert b'role="alert"' in answer.content
    assert ATTACK not in answer.content.decode()
    assert PASSWORD not in answer.content.decode()
    assert not User.objects.exists()


def test_a_closed_marketplace_says_so(client: Client) -> None:
    SitePolicy.objects.update_or_create(pk=1, defaults={"signup": "closed"})
    answer = sign_up(client)
    assert answer.status_code >= 400 and b'role="alert"' in answer.content
    assert not User.objects.exists()


def test_attempts_are_limited_by_address(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "2/min"})
    statuses = [sign_up(client, email="nonsense").status_code for _ in range(3)]
    assert statuses == [400, 400, 429]


def test_a_forged_form_makes_nothing() -> None:
    client = Client(enforce_csrf_checks=True)
    assert sign_up(client).status_code == 403
    assert not User.objects.exists()
