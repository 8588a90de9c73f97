"""Operators show a second factor: a code opens once, guesses are counted, no way in takes the password alone."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from billing import dispatch
from marketplace.accounts import organisations, passwords, second_factor, signin_limits
from marketplace.accounts.errors import PasswordChanged, SecondFactorRefused
from marketplace.accounts.models import SecondFactor, User
from marketplace.accounts.passwords import NewPassword
from marketplace.foundation import clock, totp
from marketplace.foundation.throttles import ScopedThrottle
from tests.integration.racing import race
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db

CODES_MAX = signin_limits.LIMITS["code"].failures_max
PAGE = "/second-factor"


@pytest.fixture(autouse=True)
def as_in_production(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SOUK_STAFF_SECOND_FACTOR = "required"
    monkeypatch.setattr(ScopedThrottle, "THROTTLE_RATES", {"signin": "10000/min"})


@pytest.fixture
def operator(db: None) -> User:
    user = User.objects.create_superuser("operator@example.org", PASSWORD)
    organisations.create(user, "operators")
    return user


@pytest.fixture
def carol(db: None) -> User:
    """A customer."""
    user = User.objects.create_user("carol@example.org", PASSWORD)
    organisations.create(user, "carol's")
    return user


def code_of(secret: str, *, later: int = 0) -> str:
    return totp.code_at(secret, totp.step_of(clock.now().timestamp()) + later)


def enable(user: User) -> tuple[str, list[str]]:
    """Their secret and recovery codes; the code of the step before the present one is used up."""
    secret = totp.make_secret()
    return secret, second_factor.enable(user, secret, code_of(secret, later=-1))


def sign_in(user: User) -> Client:
    browser = Client()
    browser.post("/signin", {"email": user.email, "password": PASSWORD, "next": "/admin/"})
    return browser


def log_in(user: User, code: str = "", password: str = PASSWORD) -> Any:
    body = {"email": user.email, "password": password} | ({"code": code} if code else {})
    return APIClient().post("/api/v1/login", body, format="json")


def opens_admin(browser: Client) -> bool:
    return browser.get("/admin/").status_code == 200


def test_an_operator_without_one_reaches_only_the_page_that_sets_it_up(operator: User) -> None:
    browser = sign_in(operator)
    for path in ("/admin/", "/admin/accounts/user/", "/chat", "/usage", "/password"):
        answer = browser.get(path)
        assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, PAGE)
    assert browser.post("/admin/accounts/user/", {"action": "unlock"}).headers["Location"] == PAGE
    refused = browser.get("/api/v1/me")
    assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_required")
    assert "this page is all that opens" in browser.get(PAGE).content.decode()


def test_an_operator_sets_one_up_and_goes_on(operator: User) -> None:
    browser = sign_in(operator)
    secret = re.search(r"<pre>([A-Z2-7]+)</pre>", browser.get(PAGE).content.decode())
    assert secret is not None
    form = {"password": PASSWORD, "code": code_of(secret[1]), "next": "/admin/"}
    assert browser.post(PAGE, form | {"password": "wrong"}).status_code == 403
    assert browser.post(PAGE, form | {"code": "000000"}).status_code == 403
    assert not opens_admin(browser)
    done = browser.post(PAGE, form).content.decode()
    assert len(re.findall(r"[0-9a-f]{5}-[0-9a-f]{5}-[0-9a-f]{5}-[0-9a-f]{5}", done)) == second_factor.RECOVERY_CODES
    assert opens_admin(browser)
    assert not opens_admin(sign_in(operator))  # another session shows its own code
    stored = SecondFactor.objects.get()
    assert secret[1] not in stored.sealed_secret and not set(stored.recovery_hashes) & set(done.split())


def test_the_password_alone_opens_nothing_and_a_code_opens_once(operator: User) -> None:
    secret, _ = enable(operator)
    browser, other = sign_in(operator), sign_in(operator)
    assert not opens_admin(browser)
    code = code_of(secret)
    assert browser.post(PAGE, {"code": f" {code[:3]} {code[3:]}", "next": "/admin/"}).headers["Location"] == "/admin/"
    assert opens_admin(browser)
    assert other.post(PAGE, {"code": code}).status_code == 403
    assert other.post(PAGE, {"code": code_of(secret, later=-1)}).status_code == 403  # nor an older one
    assert not opens_admin(other)


def test_a_recovery_code_opens_once_and_its_use_is_told(operator: User, mailoutbox: list[Any]) -> None:
    _, codes = enable(operator)
    browser, other = sign_in(operator), sign_in(operator)
    assert browser.post(PAGE, {"code": codes[3].upper()}).status_code == 302
    assert opens_admin(browser)
    assert other.post(PAGE, {"code": codes[3]}).status_code == 403
    dispatch.dispatch_due()
    assert "[Souk] A recovery code was used" in [each.subject for each in mailoutbox]


def test_codes_cannot_be_guessed_and_the_owner_learns_that_the_password_is_known(
    operator: User, mailoutbox: list[Any]
) -> None:
    secret, _ = enable(operator)
    browser = sign_in(operator)
    answers = [browser.post(PAGE, {"code": "000000"}).status_code for _ in range(CODES_MAX)]
    answers.append(browser.post(PAGE, {"code": code_of(secret)}).status_code)
    assert answers == [403] * CODES_MAX + [429]
    assert log_in(operator, code_of(secret)).status_code == 429
    dispatch.dispatch_due()
    assert "your password is known" in mailoutbox[-1].body
    call_command("unlock_signin", operator.email, stdout=io.StringIO())
    assert log_in(operator, code_of(secret)).status_code == 201


def test_codes_that_are_guessed_slowly_are_counted_together(
    operator: User, mailoutbox: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    enable(operator)
    browser, began, answers = sign_in(operator), clock.now(), []
    for guess in range(CODES_MAX + 1):
        monkeypatch.setattr(clock, "now", lambda at=began + timedelta(hours=guess): at)
        answers.append(browser.post(PAGE, {"code": "000000"}).status_code)
    assert answers == [403] * CODES_MAX + [429]
    dispatch.dispatch_due()
    assert "your password is known" in mailoutbox[-1].body


def test_whoever_reads_the_mail_gets_no_more_guesses_by_resets(operator: User) -> None:
    secret, _ = enable(operator)
    for _ in range(CODES_MAX):
        log_in(operator, "000000")
    found = passwords.link_token(operator.email)
    assert found is not None
    passwords.reset(str(operator.pk), found[1], NewPassword("staple battery horse", "staple battery horse"))
    assert log_in(operator, code_of(secret), password="staple battery horse").status_code == 429


def test_a_factor_of_a_request_from_before_a_reset_is_refused(operator: User) -> None:
    thief = User.objects.get(pk=operator.pk)
    found = passwords.link_token(operator.email)
    assert found is not None
    passwords.reset(str(operator.pk), found[1], NewPassword("staple battery horse", "staple battery horse"))
    with pytest.raises(PasswordChanged):
        enable(thief)
    with pytest.raises(PasswordChanged):
        passwords.set_password(thief, NewPassword("correct battery horse", "correct battery horse"))
    assert log_in(operator, password="staple battery horse").json()["code"] == "second_factor_missing"


def test_a_stranger_cannot_lock_the_codes(operator: User) -> None:
    secret, _ = enable(operator)
    for _ in range(signin_limits.LIMITS["account"].failures_max):
        log_in(operator, "000000", password="a guess")
    signin_limits.unlock(operator.email, codes=False)
    assert log_in(operator, code_of(secret)).status_code == 201


def test_a_client_signs_in_with_password_and_code(operator: User) -> None:
    refused = log_in(operator)
    assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_missing")
    assert PAGE in refused.json()["message"]
    secret, _ = enable(operator)
    assert log_in(operator).json()["code"] == "second_factor_required"
    assert log_in(operator, "000000").json()["code"] == "second_factor_refused"
    code = code_of(secret)
    assert log_in(operator, code, password="a guess").json()["code"] == "signin_refused"
    assert log_in(operator, code).status_code == 201
    assert log_in(operator, code).json()["code"] == "second_factor_refused"


def test_a_missing_code_is_no_wrong_password(operator: User) -> None:
    secret, _ = enable(operator)
    for _ in range(signin_limits.LIMITS["account"].failures_max + 2):
        assert log_in(operator).json()["code"] == "second_factor_required"
    assert log_in(operator, code_of(secret)).status_code == 201


def test_a_customer_needs_none_and_is_asked_for_the_one_they_have(carol: User) -> None:
    assert sign_in(carol).get("/chat").status_code == 200
    assert log_in(carol).status_code == 201
    secret, _ = enable(carol)
    browser = sign_in(carol)
    assert browser.get("/chat").headers["Location"].startswith(PAGE)
    browser.post(PAGE, {"code": code_of(secret)})
    assert browser.get("/chat").status_code == 200


def test_whoever_reads_the_mail_still_needs_a_code(operator: User) -> None:
    enable(operator)
    found = passwords.link_token(operator.email)
    assert found is not None
    passwords.reset(str(operator.pk), found[1], NewPassword("staple battery horse", "staple battery horse"))
    assert log_in(operator, password="staple battery horse").json()["code"] == "second_factor_required"


def test_a_factor_that_was_replaced_ends_what_the_old_one_opened(operator: User) -> None:
    secret, _ = enable(operator)
    browser = sign_in(operator)
    browser.post(PAGE, {"code": code_of(secret)})
    assert opens_admin(browser)
    out = io.StringIO()
    call_command("reset_second_factor", operator.email, stdout=out)
    assert "was removed" in out.getvalue()
    assert not opens_admin(browser)
    operator.refresh_from_db()
    enable(operator)
    assert not opens_admin(browser)
    with pytest.raises(CommandError):
        call_command("reset_second_factor", "nobody@example.org")


def test_only_a_code_removes_it_and_no_other_takes_its_place(operator: User) -> None:
    secret, codes = enable(operator)
    with pytest.raises(SecondFactorRefused):
        enable(User.objects.get(pk=operator.pk))
    browser = sign_in(operator)
    browser.post(PAGE, {"code": code_of(secret)})
    assert browser.post(PAGE, {"code": "000000"}).status_code == 403
    assert SecondFactor.objects.exists()
    assert browser.post(PAGE, {"code": codes[0]}).headers["Location"] == PAGE
    assert not SecondFactor.objects.exists()
    assert not opens_admin(browser)


def test_a_development_machine_may_say_that_operators_need_none(operator: User, settings: Settings) -> None:
    settings.SOUK_STAFF_SECOND_FACTOR = "optional"
    assert opens_admin(sign_in(operator))
    assert log_in(operator).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_one_code_at_once_one_gets_in(operator: User) -> None:
    secret, codes = enable(operator)
    for code in (code_of(secret), codes[0]):
        answers = race(*[lambda code=code: second_factor.check(operator, code) for _ in range(4)])
        assert sorted(type(each).__name__ for each in answers) == ["NoneType"] + ["SecondFactorRefused"] * 3
