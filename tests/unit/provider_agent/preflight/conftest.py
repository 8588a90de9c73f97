"""An engine that answers over a real socket."""

from __future__ import annotations

import http.server
import json
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers each route with what `answers` has for it, else with 404."""

    daemon_threads = True
    answers: dict[str, tuple[int, dict[str, Any]]]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        status, answer = self.server.answers.get(self.path, (404, {"message": "no such thing"}))
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "engine"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder, Engine(f"{folder}/docker.sock", Handler) as server:
        server.answers = {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/docker.sock")
        yield server
        server.shutdown()
