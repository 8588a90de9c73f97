"""Runs tests in forks of a process that has imported the packages of others: each then starts in one second, not six.

Nothing of this project is imported before the fork, so that each run reads the mutant's own files. Reads lines of JSON,
`{"tests": [...], "seconds": 600}`, and answers each with one, `{"code": 0, "output": "..."}`: pytest's exit status, or
null where the tests took too long, and the end of what it printed. Runs with the tests' environment.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import tempfile
from contextlib import suppress
from typing import Final

import pytest

from tests import bytecode

PACKAGES: Final = [
    "celery.app.task",
    "django.contrib.auth.hashers",
    "django.db.models",
    "django.forms",
    "django.http",
    "django.template",
    "django.test",
    "eth_account",
    "httpx",
    "hypothesis",
    "jinja2",
    "jsonschema",
    "numpy",
    "prometheus_client",
    "psycopg",
    "py_ecc",
    "pydantic",
    "redis",
    "reportlab",
    "requests",
    "schemathesis",
    "stripe",
    "yaml",
]
OUTPUT_BYTES: Final = 20_000


def main() -> None:
    """See the module."""
    bytecode.keep()
    for package in PACKAGES:
        importlib.import_module(package)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        code, output = run(wanted["tests"], wanted["seconds"])
        print(json.dumps({"code": code, "output": output}), flush=True)


def run(tests: list[str], seconds: float) -> tuple[int | None, str]:
    """Pytest's exit status, None if it was killed after `seconds`, and the end of its output."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if not child:
            _test(tests, printed.fileno())
        code = _wait(child, seconds)
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - OUTPUT_BYTES))
        return code, printed.read().decode(errors="replace")


def _test(tests: list[str], printed: int) -> None:
    """In the fork: never returns, so that no clean-up of the process that was forked runs twice."""
    code = 1
    try:
        os.setsid()
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore", *tests]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _wait(child: int, seconds: float) -> int | None:
    """The fork's exit status; whatever it started is ended with it."""
    handle = os.pidfd_open(child)
    try:
        is_over = bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if is_over else None


if __name__ == "__main__":
    main()
