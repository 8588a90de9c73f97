"""A line of the log is JSON, has what was bound to it, and no secret."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from marketplace.config.logging import REDACTED, JsonLines, redact


def line_of(message: str, *arguments: object, **extra: object) -> dict[str, object]:
    record = logging.getLogger("souk.test").makeRecord(
        "souk.test", logging.INFO, "file", 1, message, arguments, None, extra=dict(extra)
    )
    found = json.loads(JsonLines().format(record))
    assert isinstance(found, dict)
    return found


def test_a_line_has_its_event_and_what_was_bound() -> None:
    line = line_of("Placed %s.", "a job", job_id="j1", devices=2)
    assert line["event"] == "Placed a job."
    assert (line["job_id"], line["devices"], line["level"], line["logger"]) == ("j1", 2, "info", "souk.test")


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2hunter2",
        'body {"password": "hunter2hunter2"}',
        "Authorization: Bearer hunter2hunter2",
        "sent Bearer hunter2hunter2 to it",
        "key souk_hunter2hunter2",
        "key sk-souk-hunter2_hunter2-",
        "sh -s -- soukn_hunter2hunter2 --price 1",
        "key sk_live_hunter2hunter2",
        "connect to postgresql://bob:hunter2hunter2@db/souk",
        "SOUK_SIGNING_KEY=hunter2hunter2",
        "api_key: 'hunter2hunter2'",
        "GET /x?token=hunter2hunter2&a=1",
        "enrolment_token=hunter2hunter2",
    ],
)
def test_secrets_are_not_written(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert REDACTED in redact(text)


@pytest.mark.parametrize("text", ["Job 8f2 was placed on node n1.", "12 tokens/s at step 40", "http://127.0.0.1:8000/"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_bound_secret_is_not_written() -> None:
    assert line_of("Signed up.", api_key="hunter2")["api_key"] == REDACTED


def test_a_secret_in_a_traceback_is_not_written() -> None:
    try:
        raise ValueError("token=hunter2hunter2")
    except ValueError:
        record = logging.LogRecord("souk.test", logging.ERROR, "file", 1, "It broke.", (), sys.exc_info())
    text = JsonLines().format(record)
    assert "hunter2" not in text
    assert "ValueError" in text


def test_an_event_is_one_line() -> None:
    record = logging.LogRecord("souk.test", logging.INFO, "file", 1, "first\nsecond", (), None)
    assert "\n" not in JsonLines().format(record)
