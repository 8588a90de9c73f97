"""Whether trying again can help is decided in one place."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from provider_agent.errors import ClockSkewed, Fatal, Refused, Retryable, ServerBusy, Unreachable, decide


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_busy_server_is_asked_again(status: int) -> None:
    assert isinstance(decide(httpx.Response(status, text="<html>proxy</html>")), ServerBusy)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_refusal_is_final_and_keeps_what_the_server_answered(status: int) -> None:
    body = {"code": "offset_gap", "message": "no", "details": {"offset": 7}}
    error = decide(httpx.Response(status, json=body))
    assert isinstance(error, Refused)
    assert (error.status, error.refusal, error.details) == (status, "offset_gap", {"offset": 7})


def test_wrong_clock_brings_the_servers_time() -> None:
    body = {"code": "clock_skew", "message": "", "details": {"server_time": "2026-11-20T10:00:00+00:00"}}
    error = decide(httpx.Response(401, json=body))
    assert isinstance(error, ClockSkewed)
    assert error.server_time == datetime(2026, 11, 20, 10, tzinfo=UTC)


def test_lost_connection_is_retryable_and_a_bug_is_not() -> None:
    assert isinstance(decide(httpx.ConnectError("refused")), Unreachable)
    assert isinstance(decide(httpx.ConnectError("refused")), Retryable)
    assert isinstance(decide(KeyError("x")), Fatal)
