"""Signing up tells nobody which addresses have accounts: the mail does, and its link makes the account."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from billing import dispatch
from marketplace.accounts import organisations, passwords, signin_limits, signup
from marketplace.accounts.models import Invitation, Membership, PendingSignup, SitePolicy, User
from marketplace.accounts.passwords import NewPassword
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from marketplace.foundation.throttles import ScopedThrottle
from tests.people import PASSWORD, sign

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def as_in_production(db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SOUK_EMAIL_VERIFICATION = "required"
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "10000/min"})
    SitePolicy.objects.update_or_create(pk=1, defaults={"signup": "open"})


@pytest.fixture
def alice(db: None) -> Membership:
    return organisations.create(User.objects.create_user("alice@example.org", PASSWORD), "alice's")


def sign_up(email: str, *, password: str = PASSWORD, address: str = "192.0.2.1", **more: Any) -> Any:
    body = {"email": email, "password": password, **more}
    return APIClient().post("/api/v1/signup", body, format="json", REMOTE_ADDR=address)


def mails() -> list[mail.EmailMessage]:
    dispatch.dispatch_due()
    return mail.outbox


def link(settings: Settings) -> str:
    found = re.search(re.escape(settings.SOUK_API_URL) + r"(/signup/confirm/\S+)", mails()[-1].body)
    assert found is not None
    return str(found[1])


def confirm(path: str, password: str = PASSWORD) -> int:
    return int(Client().post(path, {"password": password}).status_code)


def can_log_in(email: str, password: str = PASSWORD) -> bool:
    answer = APIClient().post("/api/v1/login", {"email": email, "password": password}, format="json")
    return bool(answer.status_code == 201)


def test_a_known_and_an_unknown_address_get_one_answer_by_the_same_queries(alice: Membership) -> None:
    answers, counts = [], []
    for email in ("alice@example.org", "nobody@example.org"):
        with CaptureQueriesContext(connection) as queries:
            answers.append(sign_up(email))
        counts.append(len(queries))
    assert [each.status_code for each in answers] == [202, 202]
    assert answers[0].content == answers[1].content
    assert counts[0] == counts[1]
    assert "example.org" not in "".join(str(each.payload) for each in OutboxMessage.objects.all())


def test_nor_does_signing_in_afterwards_tell(alice: Membership) -> None:
    for email in ("alice@example.org", "nobody@example.org"):
        sign_up(email, password="another good password")
    mails()
    answers = [
        APIClient().post("/api/v1/login", {"email": email, "password": "another good password"}, format="json")
        for email in ("alice@example.org", "nobody@example.org")
    ]
    assert {(each.status_code, each.content) for each in answers} == {(401, answers[0].content)}


def test_the_mail_of_a_known_address_says_that_there_is_an_account(alice: Membership) -> None:
    sign_up("Alice@example.org", password="another good password")
    assert [(each.to, each.subject) for each in mails()] == [(["alice@example.org"], "[Souk] You have an account")]
    assert not PendingSignup.objects.exists()
    assert can_log_in("alice@example.org")


def test_the_mailed_link_makes_the_account_once(settings: Settings) -> None:
    sign_up("Bob@example.org", organisation="Bob's lab", name="Bob")
    path = link(settings)
    assert not User.objects.exists()
    assert "bob@example.org" in Client().get(path).content.decode()  # a mail program that looks at it makes nothing
    assert not User.objects.exists()
    assert confirm(path) == 302
    made = Membership.objects.get()
    assert (made.user.email, made.user.name, made.organisation.name, made.role) == (
        "bob@example.org",
        "Bob",
        "Bob's lab",
        "owner",
    )
    assert made.user.verified_at is not None and can_log_in("bob@example.org")
    assert confirm(path) == 403


def test_who_opens_a_strangers_link_gets_no_account_with_the_strangers_password(settings: Settings) -> None:
    sign_up("bob@example.org", password="the stranger's password")
    path = link(settings)
    assert confirm(path, "bob's own idea") == 403
    assert not User.objects.exists()
    answers = [confirm(path, f"guess {each}") for each in range(signin_limits.LIMITS["account"].failures_max)]
    assert answers[-1] == 429


def test_a_link_expires_and_is_forgotten(settings: Settings) -> None:
    sign_up("bob@example.org")
    path = link(settings)
    PendingSignup.objects.update(expires_at=clock.now() - timedelta(seconds=1))
    assert confirm(path) == Client().get(path).status_code == 403
    assert signup.forget_old() == 1


def test_of_two_sign_ups_for_one_address_the_second_link_makes_nothing(settings: Settings) -> None:
    sign_up("bob@example.org")
    first = link(settings)
    sign_up("bob@example.org")
    second = link(settings)
    assert (confirm(first), confirm(second)) == (302, 403)
    assert User.objects.count() == 1


def test_the_invited_joins_by_the_link_and_the_invitation_stays_until_then(
    alice: Membership, settings: Settings
) -> None:
    SitePolicy.objects.update(signup="invitation")
    assert sign_up("bob@example.org").json()["code"] == "invitation_refused"
    _, invitation = organisations.invite(alice.organisation, email="bob@example.org", role="billing")
    assert sign_up("mallory@example.org", invitation=invitation).json()["code"] == "invitation_refused"
    assert sign_up("bob@example.org", invitation=invitation).status_code == 202
    assert Invitation.objects.get().accepted_at is None
    assert confirm(link(settings)) == 302
    bob = Membership.objects.get(user__email="bob@example.org")
    assert (bob.organisation, bob.role) == (alice.organisation, "billing")


def test_a_link_opens_nothing_where_sign_up_was_closed_since(settings: Settings) -> None:
    sign_up("bob@example.org")
    path = link(settings)
    SitePolicy.objects.update(signup="closed")
    assert confirm(path) == 403
    assert not User.objects.exists()


def test_nobody_is_buried_in_mail_and_who_asks_for_many_is_refused() -> None:
    for each in range(6):
        assert sign_up("bob@example.org", address=f"198.51.100.{each}").status_code == 202
    assert len(mails()) == signin_limits.LIMITS["mail"].failures_max
    most = signin_limits.LIMITS["mail_address"].failures_max
    answers = [sign_up(f"user{each}@example.org", address="203.0.113.9").status_code for each in range(most + 1)]
    assert answers[-2:] == [202, 429]


def test_a_weak_password_is_refused_before_a_mail_is_sent() -> None:
    assert sign_up("bob@example.org", password="password1234").json()["code"] == "weak_password"
    assert mails() == []


@pytest.mark.parametrize(
    ("path", "body"),
    [("quotes", {}), ("jobs", {}), ("top-ups", {}), ("payouts", {}), ("provider", {}), ("invitations", {})],
)
def test_nothing_is_done_for_a_user_whose_address_was_never_verified(
    alice: Membership, path: str, body: dict[str, Any]
) -> None:
    User.objects.update(verified_at=None)
    client = sign(alice)
    refused = client.post(f"/api/v1/{path}", body, format="json", HTTP_IDEMPOTENCY_KEY=str(uuid4()))
    assert (refused.status_code, refused.json()["code"]) == (403, "email_unverified")
    assert "/password/forgotten" in refused.json()["message"]
    assert client.get("/api/v1/jobs").status_code == 200


def test_a_password_set_by_the_mailed_link_verifies_the_address(alice: Membership) -> None:
    User.objects.update(verified_at=None)
    found = passwords.link_token("alice@example.org")
    assert found is not None
    passwords.reset(str(alice.user_id), found[1], NewPassword("staple battery horse", "staple battery horse"))
    assert User.objects.get().verified_at is not None


def test_a_password_that_was_changed_with_the_old_one_verifies_nothing(alice: Membership) -> None:
    User.objects.update(verified_at=None)
    browser = Client()
    browser.force_login(User.objects.get())
    form = {"old": PASSWORD, "password": "staple battery horse", "again": "staple battery horse"}
    assert browser.post("/password", form).status_code == 302
    assert User.objects.get().verified_at is None


def test_the_pages_of_an_unverified_user_change_nothing_either(alice: Membership) -> None:
    browser = Client()
    browser.force_login(alice.user)
    assert browser.post("/chat/new", {}).status_code != 403
    User.objects.update(verified_at=None)
    assert browser.post("/chat/new", {}).status_code == 403


def test_a_development_machine_makes_accounts_at_once(settings: Settings) -> None:
    settings.SOUK_EMAIL_VERIFICATION = "off"
    assert sign_up("bob@example.org").status_code == 201
    assert can_log_in("bob@example.org")
    settings.SOUK_EMAIL_VERIFICATION = "required"
    bob = Membership.objects.get(user__email="bob@example.org")
    assert sign(bob).post("/api/v1/top-ups", {}, format="json").json()["code"] == "email_unverified"
