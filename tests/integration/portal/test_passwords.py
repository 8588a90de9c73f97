"""Passwords are changed by who has the old one, and reset by who reads the account's mail."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from billing import dispatch
from marketplace.accounts import api_keys, organisations, signin_limits
from marketplace.accounts.models import ApiKey, User
from marketplace.accounts.scopes import ROLE_SCOPES
from marketplace.foundation.models import OutboxMessage
from marketplace.foundation.throttles import ScopedThrottle
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db

NEW = "staple battery horse"


@pytest.fixture(autouse=True)
def only_the_database_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "10000/min"})


@pytest.fixture
def alice(db: None) -> User:
    user = User.objects.create_user("alice@example.org", PASSWORD)
    organisations.create(user, "alice's")
    return user


@pytest.mark.parametrize("path", ["/signin", "/password/forgotten"])
@pytest.mark.parametrize("kind", ["urlencoded", "multipart"])
def test_a_zero_byte_in_a_form_is_a_bad_request(alice: User, path: str, kind: str) -> None:
    form = {"email": "alice@example.org\0", "password": "x"}
    how = {"content_type": "application/x-www-form-urlencoded"} if kind == "urlencoded" else {}
    assert Client().post(path, urlencode(form) if how else form, **how).status_code == 400


def ask(email: str = "alice@example.org", *, address: str = "192.0.2.1") -> str:
    answer = Client(REMOTE_ADDR=address).post("/password/forgotten", {"email": email})
    return f"{answer.status_code} {re.sub('value=.*?>', '', answer.content.decode())}"


def mails() -> list[mail.EmailMessage]:
    dispatch.dispatch_due()
    return mail.outbox


def link(settings: Settings) -> str:
    ask(" Alice@example.org")
    found = re.search(re.escape(settings.SOUK_API_URL) + r"(/password/reset/\S+)", mails()[-1].body)
    assert found is not None
    return str(found[1])


def set_new(path: str, password: str = NEW, again: str | None = None, **more: str) -> int:
    form = {"password": password, "again": password if again is None else again, **more}
    return int(Client().post(path, form).status_code)


def can_sign_in(password: str) -> bool:
    body = {"email": "alice@example.org", "password": password}
    return bool(APIClient().post("/api/v1/login", body, format="json").status_code == 201)


def test_a_forgotten_password_is_set_anew_by_the_mailed_link_once(alice: User, settings: Settings) -> None:
    path = link(settings)
    assert Client().get(path).status_code == 200  # a mail program that looks at it uses nothing up
    assert set_new(path) == 302
    assert can_sign_in(NEW)
    assert not can_sign_in(PASSWORD)
    assert set_new(path, "another good password") == 403
    assert Client().get(path).status_code == 403


def test_the_answer_does_not_tell_which_addresses_have_accounts(alice: User) -> None:
    assert ask("alice@example.org") == ask("nobody@example.org")
    assert [each.to for each in mails()] == [["alice@example.org"]]


def test_known_and_unknown_addresses_cost_the_same_queries(alice: User) -> None:
    counts = []
    for email in ("alice@example.org", "nobody@example.org"):
        with CaptureQueriesContext(connection) as queries:
            ask(email)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_neither_address_nor_link_lies_open_in_the_outbox(alice: User) -> None:
    ask()
    message = OutboxMessage.objects.get()
    assert "alice" not in str(message.payload)
    assert "/password/" not in str(message.payload)


def test_nobody_is_buried_in_mail(alice: User) -> None:
    for each in range(10):
        ask(address=f"198.51.100.{each}")
    assert len(mails()) == signin_limits.LIMITS["mail"].failures_max


def test_who_asks_for_many_accounts_is_refused(alice: User) -> None:
    answers = [
        ask(f"user{each}@example.org")[:3] for each in range(signin_limits.LIMITS["mail_address"].failures_max + 1)
    ]
    assert answers[-2:] == ["200", "429"]


@pytest.mark.parametrize("path", ["/password/reset/x/y", "/password/reset/00000000-0000-4000-8000-000000000000/a-b"])
def test_an_invented_link_opens_nothing(alice: User, path: str) -> None:
    assert Client().get(path).status_code == 403
    assert set_new(path) == 403


def test_a_link_expires_after_an_hour(alice: User, settings: Settings) -> None:
    path = link(settings)
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert set_new(path) == 403


def test_a_link_of_one_account_opens_no_other(alice: User, settings: Settings) -> None:
    bob = User.objects.create_user("bob@example.org", PASSWORD)
    path = link(settings).replace(str(alice.pk), str(bob.pk))
    assert set_new(path) == 403


@pytest.mark.parametrize(("password", "again"), [("short", "short"), ("password1234", "password1234"), (NEW, "other")])
def test_a_weak_or_mistyped_password_is_refused_and_the_link_stays(
    alice: User, settings: Settings, password: str, again: str
) -> None:
    path = link(settings)
    assert set_new(path, password, again) == 400
    assert set_new(path) == 302


def test_a_reset_ends_sessions_and_keys_and_locks_and_is_told_of(alice: User, settings: Settings) -> None:
    thief = Client()
    thief.force_login(alice)
    key, _ = api_keys.issue(
        user=alice, organisation=alice.organisations.get(), name="thief's", scopes=ROLE_SCOPES["owner"]
    )
    for each in range(signin_limits.LIMITS["account"].failures_max + 1):
        body = {"email": alice.email, "password": "guess"}
        APIClient().post("/api/v1/login", body, format="json", REMOTE_ADDR=f"198.51.100.{each}")
    assert set_new(link(settings)) == 302
    assert thief.get("/chat").status_code == 302
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert can_sign_in(NEW)
    assert "Your password was changed" in mails()[-1].subject


def test_an_inactive_account_gets_no_link(alice: User) -> None:
    User.objects.update(is_active=False)
    ask()
    assert mails() == []


@pytest.fixture
def browser(alice: User) -> Client:
    browser = Client()
    browser.force_login(alice)
    return browser


def change(browser: Client, old: str = PASSWORD, new: str = NEW, again: str | None = None, **more: str) -> int:
    form = {"old": old, "password": new, "again": new if again is None else again, **more}
    return int(browser.post("/password", form).status_code)


def test_a_password_is_changed_by_who_has_the_old_one(alice: User, browser: Client) -> None:
    other = Client()
    other.force_login(alice)
    assert browser.get("/password").status_code == 200
    assert change(browser) == 302
    assert browser.get("/chat").status_code == 200  # this session stays
    assert other.get("/chat").status_code == 302  # all others end
    assert can_sign_in(NEW)
    assert "Your password was changed" in mails()[-1].subject


@pytest.mark.parametrize(("form", "is_revoked"), [({}, False), ({"revoke_tokens": "on"}, True)])
def test_a_change_revokes_keys_where_the_box_is_ticked(
    alice: User, browser: Client, form: dict[str, str], is_revoked: bool
) -> None:
    api_keys.issue(user=alice, organisation=alice.organisations.get(), name="ci", scopes=["jobs:read"])
    assert change(browser, **form) == 302
    assert (ApiKey.objects.get().revoked_at is not None) is is_revoked


def test_who_took_over_a_session_cannot_guess_the_password_in_it(alice: User, browser: Client) -> None:
    most = signin_limits.LIMITS["account"].failures_max
    assert [change(browser, f"guess {each}") for each in range(most)] == [403] * most
    assert change(browser) == 429
    assert alice.check_password(PASSWORD)


@pytest.mark.parametrize(("new", "again"), [("short", "short"), (NEW, "other"), ("alice@example.org", None)])
def test_a_weak_or_mistyped_new_password_changes_nothing(browser: Client, new: str, again: str | None) -> None:
    assert change(browser, new=new, again=again) == 400
    assert can_sign_in(PASSWORD)


def test_the_admins_page_for_passwords_leads_to_this_one(db: None) -> None:
    operator = Client()
    operator.force_login(User.objects.create_superuser("operator@example.org", PASSWORD))
    assert operator.get("/admin/password_change/").headers["Location"] == "/password"


@pytest.mark.parametrize("path", ["/password/forgotten", "/signin"])
def test_every_field_has_a_label_and_no_script_is_needed(path: str) -> None:
    page = Client().get(path).content.decode()
    fields = re.findall(r"<input(?![^>]*type=\"hidden\")[^>]*>", page)
    assert fields
    for field in fields:
        assert re.search(r"<label>[^<]*\s*" + re.escape(field), page)
    assert 'method="post"' in page
