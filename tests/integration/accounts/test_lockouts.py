"""A stranger's guesses lock out strangers; the owner signs in from where they did before; every lock can be ended."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from rest_framework.test import APIClient

from marketplace.accounts import organisations, passwords, signin_addresses, signin_limits
from marketplace.accounts.models import Membership, SigninAddress, SigninLimit, User
from marketplace.accounts.passwords import NewPassword
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from marketplace.foundation.throttles import ScopedThrottle
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db

HOME = "192.0.2.1"
ACCOUNT_MAX = signin_limits.LIMITS["account"].failures_max
MAILS_MAX = signin_limits.LIMITS["mail"].failures_max


@pytest.fixture(autouse=True)
def only_the_database_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of requests a minute, which counts in Redis, is out of the way."""
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "10000/min"})


def log_in(password: str = PASSWORD, *, address: str = HOME, email: str = "alice@example.org", **more: str) -> Any:
    body = {"email": email, "password": password, **more}
    return APIClient().post("/api/v1/login", body, format="json", REMOTE_ADDR=address)


def guess(times: int = ACCOUNT_MAX + 1) -> None:
    for each in range(times):
        log_in(f"guess {each}", address=f"198.51.100.{each}")


def ask_for_mail(address: str) -> None:
    Client(REMOTE_ADDR=address).post("/password/forgotten", {"email": "alice@example.org"})


def unlock(email: str = "alice@example.org") -> str:
    out = io.StringIO()
    call_command("unlock_signin", email, stdout=out)
    return out.getvalue()


def test_guesses_from_elsewhere_do_not_lock_the_owner_out(alice: Membership) -> None:
    assert log_in().status_code == 201
    guess()
    assert log_in().status_code == 201
    assert log_in(address="203.0.113.1").status_code == 429  # a place that was never seen


def test_a_sign_in_at_home_gives_strangers_no_new_guesses(alice: Membership) -> None:
    log_in()
    guess(ACCOUNT_MAX)
    log_in()
    assert log_in("one more", address="203.0.113.1").status_code == 429


def test_an_address_that_signed_in_before_has_a_limit_of_its_own(alice: Membership) -> None:
    log_in()
    assert [log_in("wrong").status_code for _ in range(ACCOUNT_MAX)] == [401] * ACCOUNT_MAX
    assert log_in().status_code == 429
    assert log_in(address="203.0.113.1").status_code == 201


def test_an_address_is_known_for_one_account_alone(alice: Membership, mallory: Membership) -> None:
    log_in(email="mallory@example.org", address="203.0.113.1")
    guess()
    assert log_in("wrong", address="203.0.113.1").status_code == 429


def test_a_user_keeps_few_addresses_and_none_in_clear(alice: Membership) -> None:
    for each in range(signin_addresses.ADDRESSES_MAX + 5):
        signin_addresses.remember(alice.user, f"203.0.113.{each}")
    rows = SigninAddress.objects.filter(user=alice.user)
    assert rows.count() == signin_addresses.ADDRESSES_MAX
    assert not any("203.0.113" in row.address_hash for row in rows)
    rows.update(signed_in_at=clock.now() - timedelta(days=signin_addresses.KEEP_DAYS + 1))
    assert not signin_addresses.is_known("alice@example.org", signin_addresses.hash_of("203.0.113.20"))
    assert signin_addresses.forget_old() == signin_addresses.ADDRESSES_MAX


def test_strangers_who_ask_for_mails_do_not_keep_them_from_the_owner(alice: Membership) -> None:
    log_in()
    for each in range(MAILS_MAX + 2):
        ask_for_mail(f"198.51.100.{each}")
    before = OutboxMessage.objects.filter(kind="portal.password_reset").count()
    ask_for_mail(HOME)
    assert OutboxMessage.objects.filter(kind="portal.password_reset").count() == before + 1


def test_the_pause_of_mails_ends_while_the_last_link_holds(alice: Membership, settings: Any) -> None:
    limit = signin_limits.LIMITS["mail"]
    assert limit.lock_seconds(30) < settings.PASSWORD_RESET_TIMEOUT


def test_a_password_set_by_the_mailed_link_clears_every_counter(alice: Membership) -> None:
    guess()
    for each in range(MAILS_MAX + 2):
        ask_for_mail(f"198.51.100.{each}")
    found = passwords.link_token("alice@example.org")
    assert found is not None
    passwords.reset(str(alice.user_id), found[1], NewPassword("staple battery horse", "staple battery horse"))
    keys = {signin_limits.key_of(kind, "alice@example.org") for kind in ("account", "mail")}
    assert not SigninLimit.objects.filter(key__in=keys).exists()
    assert log_in("staple battery horse", address="203.0.113.1").status_code == 201


def test_the_command_lets_an_operator_in_and_names_what_it_cleared(db: None) -> None:
    User.objects.create_superuser("alice@example.org", PASSWORD)
    guess()
    ask_for_mail(HOME)
    said = unlock("Alice@Example.org")
    assert f"{ACCOUNT_MAX} wrong passwords from addresses that it never signed in from, locked until" in said
    assert "1 mails asked for" in said
    assert "nothing was counted" in unlock()
    assert log_in(address="203.0.113.1").json()["code"] != "signin_locked"
    assert "no account of this address" in unlock("nobody@example.org")


def test_a_right_password_is_no_failure_whatever_the_answer(alice: Membership) -> None:
    organisations.create(alice.user, "second")
    for _ in range(ACCOUNT_MAX + 2):
        assert log_in().json()["code"] == "organisation_required"
    assert log_in(organisation="second").status_code == 201
