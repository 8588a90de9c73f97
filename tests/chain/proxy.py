"""An endpoint in front of another one that may lie, lag, or be down."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Tamper = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


class Proxy:
    """`tamper(request, response)` may change any answer; `is_down` closes every connection without one."""

    def __init__(self, target: str) -> None:
        self.tamper: Tamper | None = None
        self.is_down = False
        self.ask = httpx.Client(timeout=20)  # one for all: each would load every certificate of the system anew
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if proxy.is_down:
                    self.close_connection = True
                    return
                answer = proxy.ask.post(target, content=body, headers={"Content-Type": "application/json"}).json()
                if proxy.tamper is not None:
                    answer = proxy.tamper(json.loads(body), answer)
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Silent."""

        ThreadingHTTPServer.daemon_threads = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
