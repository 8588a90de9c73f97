"""The proxy of docs/nginx.conf, in front of the web process."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def documented_proxy(folder: Path, **ports: int) -> Iterator[int]:
    """The port of nginx as documented; `ports` are those of what stands behind it, by the names of its upstreams."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    documented = "\n".join(line for line in CONF.read_text().splitlines() if "ssl_certificate" not in line)
    documented = documented.replace("listen 443 ssl", f"listen {LOOPBACK}:{port}")
    for name, behind in ports.items():
        documented, found = re.subn(rf"(upstream souk_{name} .*?:)\d+", rf"\g<1>{behind}", documented)
        assert found == 1, name
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, documented=documented))
    child = children.start(Recipe("nginx", [program, "-c", str(folder / "nginx.conf")], folder / "log"))
    try:
        children.wait_until(child, lambda: _answers(port), seconds=READY_SECONDS)
        yield port
    finally:
        child.stop()


@pytest.fixture
def proxied(web: int, tmp_path: Path) -> Iterator[int]:
    """The port of nginx in front of the web process."""
    with documented_proxy(tmp_path, web=web) as port:
        yield port


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
        assert _get(proxied, "/internal/gateway/v1/sync") == 404, "not asked of the web process, which has it"
    finally:
        for one in slow:
            one.close()


@pytest.mark.parametrize(
    ("upstream", "path"), [("web", "/api/v1/login"), ("gateway", "/v1/models"), ("gateway", "/tunnel/v1")]
)
def test_the_documented_proxy_says_who_asked(upstream: str, path: str, tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as behind:
        behind.settimeout(READY_SECONDS)
        with documented_proxy(tmp_path, **{upstream: behind.getsockname()[1]}) as port:
            caller = socket.create_connection((LOOPBACK, port), 10)
            lie = "X-Forwarded-For: 203.0.113.9\r\nConnection: upgrade\r\nUpgrade: souk\r\n"
            caller.sendall(f"GET {path} HTTP/1.1\r\nHost: souk.example\r\n{lie}\r\n".encode())
            connection, _ = behind.accept()
            connection.settimeout(READY_SECONDS)
            lines = connection.recv(65536).decode().split("\r\n")
            connection.close()
            caller.close()
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert (headers["Host"], headers["X-Forwarded-For"]) == ("souk.example", LOOPBACK)
    assert headers.get("Upgrade") == ("souk" if path.startswith("/tunnel") else None)


@pytest.mark.parametrize(
    "directive",
    ["proxy_request_buffering on", "proxy_buffering on", "client_body_timeout 10s", "client_header_timeout 10s"],
)
def test_the_documented_proxy_buffers_and_has_deadlines(directive: str) -> None:
    assert f"    {directive};" in CONF.read_text()
