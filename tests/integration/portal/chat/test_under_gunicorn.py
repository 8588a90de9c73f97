"""Under the real web server: a reader who hangs up costs the answer nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from marketplace.config.embedded.processes import WEB_WORKER
from marketplace.portal.chat.models import Chat
from tests.fakes.engine import EngineChild, free_port
from tests.integration.portal.chat.conftest import newest, read_until_text, wait_until

STARTING = """
import marketplace.config.settings as settings, sys
settings.DATABASES["default"]["NAME"] = {name!r}
settings.SOUK_SERVING_URL = {serving!r}
from gunicorn.app.wsgiapp import run
sys.argv = ["gunicorn", "marketplace.config.wsgi:application", "--bind", "127.0.0.1:{port}",
            "--worker-class", {worker!r}, "--threads", "8", "--no-control-socket", "--log-level", "warning"]
run()
"""


@pytest.fixture
def port(chat: Chat, engine: EngineChild, tmp_path: Path) -> Iterator[int]:
    """Where gunicorn serves the test's own database."""
    port = free_port()
    name = connection.settings_dict["NAME"]
    program = STARTING.format(name=name, serving=settings.SOUK_SERVING_URL, port=port, worker=WEB_WORKER)
    with (tmp_path / "web.log").open("wb") as log:
        web = subprocess.Popen([sys.executable, "-c", program], stdout=log, stderr=log)
    wait_until(lambda: _is_open(port))
    yield port
    web.terminate()
    web.wait(20)


def test_an_answer_goes_on_when_its_reader_hangs_up(
    browser: Client, chat: Chat, engine: EngineChild, port: int
) -> None:
    engine.call("POST", "/fake/pace", {"token_ms": 2_000})
    browser.get(f"/chat/{chat.pk}")
    token = browser.cookies["csrftoken"].value
    cookies = f"sessionid={browser.cookies['sessionid'].value}; csrftoken={token}"
    headers = {
        "Cookie": cookies,
        "Accept": "text/event-stream",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    reader: Any = HTTPConnection("127.0.0.1", port, timeout=60)  # its worker loads the site first
    reader.request(
        "POST", f"/chat/{chat.pk}/messages", urlencode({"text": "Hello", "csrfmiddlewaretoken": token}), headers
    )
    answer = reader.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    read_until_text(iter(answer.readline, b""))
    assert newest(chat).ended_at is None  # it came as it was written
    answer.close()
    reader.close()
    engine.call("POST", "/fake/pace", {"token_ms": 200})
    wait_until(lambda: newest(chat).ended_at)
    assert (newest(chat).output_tokens, newest(chat).error) == (20, "")


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
