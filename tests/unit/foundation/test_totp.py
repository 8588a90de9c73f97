"""Codes are those of RFC 6238, whatever app made them."""

from __future__ import annotations

import base64

import pytest

from marketplace.foundation import totp

SECRET = base64.b32encode(b"12345678901234567890").decode()  # of RFC 6238, appendix B


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (59, "287082"),
        (1_111_111_109, "081804"),
        (1_111_111_111, "050471"),
        (1_234_567_890, "005924"),
        (2_000_000_000, "279037"),
        (20_000_000_000, "353130"),
    ],
)
def test_the_standards_own_examples_come_out(seconds: int, code: str) -> None:
    assert totp.code_at(SECRET, totp.step_of(seconds)) == code
    assert totp.find_step(SECRET, code, seconds) == totp.step_of(seconds)


@pytest.mark.parametrize(("late", "is_found"), [(-60, False), (-30, True), (0, True), (30, True), (60, False)])
def test_a_code_holds_for_half_a_minute_around_its_own(late: int, is_found: bool) -> None:
    middle = 1_200_000_015  # of a step
    code = totp.code_at(SECRET, totp.step_of(middle))
    assert (totp.find_step(SECRET, code, middle + late) is not None) is is_found


@pytest.mark.parametrize("text", ["", "28708", "2870820", "２８７０８２", "abcdef"])
def test_no_other_text_is_a_code(text: str) -> None:
    assert totp.find_step(SECRET, text, 59) is None


def test_secrets_are_long_and_never_the_same() -> None:
    made = {totp.make_secret() for _ in range(10)}
    assert len(made) == 10
    assert {len(base64.b32decode(each)) for each in made} == {20}


def test_the_link_names_account_and_issuer() -> None:
    link = totp.link_for("ABC", email="a b@example.org", issuer="Souk")
    assert link == "otpauth://totp/Souk%3Aa%20b%40example.org?secret=ABC&issuer=Souk&digits=6&period=30"
