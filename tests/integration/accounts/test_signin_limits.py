"""Passwords cannot be guessed: failures are counted by account and by address, on every way in, without Redis too."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from django.core import mail
from django.core.cache.backends.redis import RedisCache
from django.test import Client
from rest_framework.test import APIClient

from billing import dispatch
from marketplace.accounts import signin_limits
from marketplace.accounts.models import Membership, SigninLimit, User
from marketplace.foundation import clock
from marketplace.foundation.throttles import ScopedThrottle
from tests.integration.racing import race
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db

ACCOUNT_MAX = signin_limits.LIMITS["account"].failures_max
ADDRESS_MAX = signin_limits.LIMITS["address"].failures_max


@pytest.fixture(autouse=True)
def only_the_database_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of requests a minute, which counts in Redis, is out of the way."""
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "10000/min"})


def log_in(
    email: str = "alice@example.org", password: str = PASSWORD, *, address: str = "192.0.2.1", **more: Any
) -> int:
    body = {"email": email, "password": password}
    answer = APIClient().post("/api/v1/login", body, format="json", REMOTE_ADDR=address, **more)
    return int(answer.status_code)


def sign_in(email: str, password: str, *, path: str = "/signin", address: str = "192.0.2.1") -> Client:
    browser = Client(REMOTE_ADDR=address)
    browser.post(path, {"email": email, "username": email, "password": password, "next": "/admin/"}, follow=True)
    return browser


def is_signed_in(browser: Client) -> bool:
    return "_auth_user_id" in browser.session


def guess(times: int, *, email: str = "alice@example.org", spread: bool = True) -> list[int]:
    return [
        log_in(email, f"guess {each}", address=f"198.51.100.{each}" if spread else "203.0.113.9")
        for each in range(times)
    ]


def test_the_right_password_does_not_help_after_too_many_wrong_ones(alice: Membership) -> None:
    assert guess(ACCOUNT_MAX) == [401] * ACCOUNT_MAX
    assert log_in() == 429
    assert not is_signed_in(sign_in("alice@example.org", PASSWORD))


@pytest.mark.parametrize("path", ["/signin", "/admin/login/"])
def test_the_61st_password_is_not_let_in_at_any_page(db: None, path: str) -> None:
    User.objects.create_superuser("operator@example.org", PASSWORD)
    for each in range(60):
        sign_in("operator@example.org", f"guess {each}", path=path)
    browser = sign_in("operator@example.org", PASSWORD, path=path)
    assert not is_signed_in(browser)
    assert browser.get("/admin/").status_code == 302


def test_pages_and_api_count_the_same_failures(alice: Membership) -> None:
    guess(ACCOUNT_MAX - 1)
    sign_in("alice@example.org", "wrong")
    assert log_in() == 429


def test_many_accounts_from_one_address_are_as_few_guesses(alice: Membership) -> None:
    for each in range(ADDRESS_MAX):
        assert log_in(f"user{each}@example.org", "wrong", address="203.0.113.9") == 401
    assert log_in(address="203.0.113.9") == 429
    assert log_in(address="203.0.113.10") == 201


def test_an_idempotency_key_escapes_no_limit(alice: Membership) -> None:
    answers = [log_in(password=f"guess {each}", HTTP_IDEMPOTENCY_KEY=f"key {each}") for each in range(ACCOUNT_MAX + 1)]
    assert answers == [401] * ACCOUNT_MAX + [429]


def test_a_repeated_answer_of_an_earlier_sign_in_forgives_nothing(alice: Membership) -> None:
    assert log_in(HTTP_IDEMPOTENCY_KEY="an old success") == 201
    for address in range(1, 4):
        for guess in range(ACCOUNT_MAX // 2):
            log_in(password=f"guess {guess}", address=f"203.0.113.{address}")
        log_in(HTTP_IDEMPOTENCY_KEY="an old success", address=f"203.0.113.{address}")
    assert log_in(password="one more", address="203.0.113.9") == 429


def test_limits_hold_while_redis_is_away(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise redis.ConnectionError("refused")

    monkeypatch.setattr(RedisCache, "get", refuse)
    assert guess(ACCOUNT_MAX + 1)[-1] == 429


def test_a_success_starts_the_count_over(alice: Membership) -> None:
    guess(ACCOUNT_MAX - 1)
    assert log_in() == 201
    assert guess(ACCOUNT_MAX - 1) == [401] * (ACCOUNT_MAX - 1)


def test_success_with_an_own_account_frees_no_other_guesses(alice: Membership, mallory: Membership) -> None:
    for _ in range(ADDRESS_MAX - 1):
        log_in("nobody@example.org", "wrong", address="203.0.113.9")
        log_in("mallory@example.org", address="203.0.113.9")
    row = SigninLimit.objects.get(key=signin_limits.key_of("address", "203.0.113.9"))
    assert row.failures >= ACCOUNT_MAX


def test_an_unknown_address_is_locked_like_a_known_one(alice: Membership) -> None:
    assert guess(ACCOUNT_MAX + 1, email="nobody@example.org") == guess(ACCOUNT_MAX + 1)


def test_the_owner_is_told_of_the_lock_once(alice: Membership) -> None:
    guess(ACCOUNT_MAX + 5)
    dispatch.dispatch_due()
    assert [(each.to, each.subject) for each in mail.outbox] == [
        (["alice@example.org"], "[Souk] Signing in to your account is locked")
    ]


def test_a_lock_ends_and_the_next_one_is_twice_as_long(alice: Membership) -> None:
    for seconds in (900, 1800):
        guess(ACCOUNT_MAX + 1)
        row = SigninLimit.objects.get(key=signin_limits.key_of("account", "alice@example.org"))
        assert abs((row.locked_until - clock.now()).total_seconds() - seconds) < 60
        SigninLimit.objects.update(locked_until=clock.now() - timedelta(seconds=1))
    assert log_in() == 201


def test_old_failures_are_forgotten(alice: Membership) -> None:
    guess(ACCOUNT_MAX)
    SigninLimit.objects.update(began_at=clock.now() - timedelta(seconds=signin_limits.WINDOW_SECONDS + 1))
    assert log_in() == 201
    guess(1)
    SigninLimit.objects.update(began_at=clock.now() - timedelta(days=signin_limits.KEEP_DAYS + 1))
    assert signin_limits.forget_old() > 0
    assert not SigninLimit.objects.exists()


def test_an_operator_lets_somebody_in_again(alice: Membership) -> None:
    guess(ACCOUNT_MAX + 1)
    operator = Client()
    operator.force_login(User.objects.create_superuser("operator@example.org", PASSWORD))
    operator.post("/admin/accounts/user/", {"action": "unlock", "_selected_action": [str(alice.user.pk)]})
    assert log_in() == 201


def test_a_customer_at_the_admin_is_not_sent_in_circles(alice: Membership) -> None:
    browser = sign_in("alice@example.org", PASSWORD)
    page = browser.get("/admin/", follow=True)
    assert page.status_code == 403
    assert "not an operator" in page.content.decode()


def test_an_operator_signs_in_to_the_admin_by_the_portals_page(db: None) -> None:
    User.objects.create_superuser("operator@example.org", PASSWORD)
    browser = Client()
    form = browser.get("/admin/", follow=True)
    assert 'value="/admin/"' in form.content.decode()
    done = browser.post("/signin", {"email": "operator@example.org", "password": PASSWORD, "next": "/admin/"})
    assert done.headers["Location"] == "/admin/"
    assert browser.get("/admin/").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_guesses_at_the_same_moment_are_all_counted(alice: Membership) -> None:
    guess(ACCOUNT_MAX - 1)
    answers = race(*[lambda each=each: log_in(password="wrong", address=f"192.0.2.{each}") for each in range(2, 6)])
    assert sorted(answers) == [401, 429, 429, 429]
