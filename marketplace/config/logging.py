"""One event a line, as JSON, without secrets, from any logger: every handler formats through here."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

LINE_CHARACTERS_MAX = 16_384
REDACTED = "[redacted]"
# What a LogRecord carries by itself; everything else was bound by the caller (job_id, node_id, ...).
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRETS = (
    # A named secret: password=..., "token": "...", Authorization: Bearer ...
    (
        re.compile(
            r"(?i)((?:password|passwd|secret|token|authorization|cookie|signature|private|credential|"
            r"api[_-]?key|access[_-]?key|signing[_-]?key)[\w-]*[\"']?\s*[:=]\s*[\"']?(?:bearer\s+|basic\s+)?)"
            r"[^\s\"',;&)}\]]+"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {REDACTED}"),
    # Our own keys and tokens, and Stripe's, by their prefix.
    (re.compile(r"\b(?:(?:soukn?|sk|rk|whsec)_|sk-souk-)[A-Za-z0-9_-]{8,}"), REDACTED),
    # The password of a URL.
    (re.compile(r"(://[^:/@\s]*:)[^@/\s]+@"), rf"\1{REDACTED}@"),
)
_SECRET_NAMES = re.compile(r"(?i)(password|secret|token|authorization|api_?key|signing_?key|private)")


def redact(text: str) -> str:
    """The text without what looks like a secret."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class JsonLines(logging.Formatter):
    """time, level, logger, event, the bound values, and the traceback if there is one; each of them redacted."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": redact(record.getMessage())[:LINE_CHARACTERS_MAX],
        }
        for name, value in vars(record).items():
            if name not in _OWN and not name.startswith("_"):
                line[name] = REDACTED if _SECRET_NAMES.search(name) else _plain(value)
        if record.exc_info:
            line["traceback"] = redact(self.formatException(record.exc_info))[-LINE_CHARACTERS_MAX:]
        return json.dumps(line, ensure_ascii=False)


def settings_for(level: str) -> dict[str, Any]:
    """Django's LOGGING: everything to standard error through JsonLines."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "marketplace.config.logging.JsonLines"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django's own handlers would print a second, unredacted line (or send mail).
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            "httpx": {"level": "WARNING"},  # a line a request, with the whole address: a signed one is a secret
            "celery.beat": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},  # "Task received", several a second
            "celery.app.trace": {"level": "WARNING"},  # "Task succeeded", several a second
        },
    }


def _plain(value: Any) -> Any:
    if isinstance(value, int | float | bool) or value is None:
        return value
    return redact(str(value))[:LINE_CHARACTERS_MAX]
