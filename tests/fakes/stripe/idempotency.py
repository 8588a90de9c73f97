"""Answers by Idempotency-Key: the first is kept for 24 hours and replayed, a 500 too; other parameters are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.fakes.stripe.errors import WireError
from tests.fakes.stripe.routes import Call
from tests.fakes.stripe.shapes import Object

KEPT_SECONDS: Final = 24 * 3600
KEY_CHARACTERS_MAX: Final = 255


@dataclass(frozen=True)
class Answer:
    """What goes over the wire."""

    status: int
    body: Object
    request_id: str
    original_request_id: str = ""

    @property
    def is_replayed(self) -> bool:
        return bool(self.original_request_id)


@dataclass(frozen=True)
class _Stored:
    at: int
    path: str
    raw: str
    answer: Answer


class Idempotency:
    """One entry an account and key."""

    def __init__(self) -> None:
        self._stored: dict[tuple[str, str], _Stored] = {}

    def find(self, call: Call, raw: str, now: int) -> Answer | None:
        """The stored answer to this very call, if there is one; raises WireError for another call under its key."""
        if len(call.idempotency_key) > KEY_CHARACTERS_MAX:
            message = f"The idempotency key must be at most {KEY_CHARACTERS_MAX} characters."
            raise WireError(400, "idempotency_error", message, is_stored=False)
        found = self._stored.get((call.account, call.idempotency_key))
        if found is None or now - found.at >= KEPT_SECONDS:
            return None
        if found.path != call.path:
            raise _misused(call, f"for the same endpoint they were first used for ('{found.path}')")
        if found.raw != raw:
            raise _misused(call, "with the same parameters they were first used with")
        return Answer(found.answer.status, found.answer.body, call.request_id, found.answer.request_id)

    def keep(self, call: Call, raw: str, now: int, answer: Answer) -> None:
        if call.idempotency_key:
            self._stored[call.account, call.idempotency_key] = _Stored(now, call.path, raw, answer)


def _misused(call: Call, how: str) -> WireError:
    message = (
        f"Keys for idempotent requests can only be used {how}. Try using a key other than '{call.idempotency_key}' if "
        "you meant to execute a different request."
    )
    return WireError(400, "idempotency_error", message, is_stored=False)
