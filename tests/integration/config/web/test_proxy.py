"""The proxy of docs/nginx.conf, in front of the web process."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from marketplace.config.embedded import children
from marketplace.config.embedded.children import Recipe
from tests.fakes.engine import free_port
from tests.integration.config.web.conftest import LOOPBACK

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[4]
CONF = ROOT / "docs" / "nginx.conf"
SLOW_BODIES = 60  # more than the web process has threads
READY_SECONDS = 30
# Around the documented file: the test's own folders, ports and no certificate.
AROUND = """
daemon off; master_process off; user root; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {documented}
}}
"""


@pytest.fixture
def proxied(web: int, tmp_path: Path) -> Iterator[int]:
    """The port of nginx where it is installed (`.ci/run` does), else that of the web process behind it."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/bin")
    if program is None:
        yield web
        return
    port = free_port()
    lines = [line for line in CONF.read_text().splitlines() if "ssl_certificate" not in line]
    documented = "\n".join(lines).replace("listen 443 ssl", f"listen {LOOPBACK}:{port}").replace(":8000", f":{web}")
    (tmp_path / "nginx.conf").write_text(AROUND.format(folder=tmp_path, documented=documented))
    child = children.start(Recipe("nginx", [program, "-c", str(tmp_path / "nginx.conf")], tmp_path / "log"))
    try:
        children.wait_until(child, lambda: _answers(port), seconds=READY_SECONDS)
        yield port
    finally:
        child.stop()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def _get(port: int, path: str) -> int:
    connection = HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": "127.0.0.1"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_documented_proxy_reads_slow_bodies_itself(proxied: int) -> None:
    slow = [socket.create_connection((LOOPBACK, proxied), 10) for _ in range(SLOW_BODIES)]
    try:
        for one in slow:
            one.sendall(b"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90\r\n\r\n{")
        assert _get(proxied, "/healthz") == 200
        assert _get(proxied, "/internal/gateway/v1/sync") in {401, 403, 404, 405}
    finally:
        for one in slow:
            one.close()


@pytest.mark.parametrize(
    "directive",
    ["proxy_request_buffering on", "proxy_buffering on", "client_body_timeout 10s", "client_header_timeout 10s"],
)
def test_the_documented_proxy_buffers_and_has_deadlines(directive: str) -> None:
    assert f"    {directive};" in CONF.read_text()
