"""Codes of six digits that change every half a minute: RFC 6238 with SHA-1, which every authenticator app knows.

Checked against the RFC's own vectors. Twenty lines of the standard library; a package would save none of what is hard,
which is that a code opens once, and that guesses are counted (`marketplace/accounts/second_factor.py`).
"""

from __future__ import annotations

import base64
import hmac
import secrets
from typing import Final
from urllib.parse import quote, urlencode

DIGITS: Final = 6
STEP_SECONDS: Final = 30
SECRET_BYTES: Final = 20  # as RFC 4226 recommends for SHA-1
STEPS_AROUND: Final = 1  # before and after: clocks differ, and people type slowly


def make_secret() -> str:
    """A new one, in the base 32 that apps take."""
    return base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode()


def code_at(secret: str, step: int) -> str:
    """The code of a secret in one step of STEP_SECONDS since 1970."""
    digest = hmac.digest(base64.b32decode(secret), step.to_bytes(8, "big"), "sha1")
    offset = digest[-1] & 0xF
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFF_FFFF
    return str(number % 10**DIGITS).zfill(DIGITS)


def step_of(seconds: float) -> int:
    """The step of a moment, in seconds since 1970."""
    return int(seconds) // STEP_SECONDS


def find_step(secret: str, code: str, seconds: float) -> int | None:
    """The step, near this moment, whose code it is; None for any other text."""
    found = None
    for step in range(step_of(seconds) - STEPS_AROUND, step_of(seconds) + STEPS_AROUND + 1):
        if hmac.compare_digest(code_at(secret, step).encode(), code.encode()):
            found = step
    return found


def link_for(secret: str, *, email: str, issuer: str) -> str:
    """What a phone opens in an authenticator app."""
    query = urlencode({"secret": secret, "issuer": issuer, "digits": DIGITS, "period": STEP_SECONDS})
    return f"otpauth://totp/{quote(f'{issuer}:{email}')}?{query}"
