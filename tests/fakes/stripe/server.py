"""The fake's HTTP side: headers in and out, answers as JSON, and faults that a socket can show."""

from __future__ import annotations

import json
import socket
import struct
import threading
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tests.fakes.stripe.errors import WireError
from tests.fakes.stripe.faults import Fault
from tests.fakes.stripe.idempotency import Answer
from tests.fakes.stripe.shapes import API_VERSION

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

BODY_BYTES_MAX: Final = 1 << 20
_RESET: Final = (Fault.RESET_BEFORE, Fault.RESET_AFTER)
_SILENT: Final = (Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER)


class Server(ThreadingHTTPServer):
    """Listens on loopback on a free port until it is closed."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, stripe: FakeStripe) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stripe = stripe
        self.is_closing = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.is_closing.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that gave up is no error of ours; anything else is kept for the test to see."""
        import sys

        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.stripe.crashes.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_DELETE(self) -> None:
        self._handle()

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""

    def _handle(self) -> None:
        stripe = self.server.stripe
        length = min(int(self.headers.get("Content-Length") or 0), BODY_BYTES_MAX)
        raw = self.rfile.read(length).decode()
        parts = urlsplit(self.path)
        fault = stripe.choose_fault(self.command, parts.path)
        answer = stripe.handle(
            self.command,
            parts.path,
            raw if self.command == "POST" else parts.query,
            key=self._api_key(),
            account=self.headers.get("Stripe-Account") or self.headers.get("Stripe-Context") or "",
            idempotency_key=self.headers.get("Idempotency-Key") or "",
            version=self.headers.get("Stripe-Version") or "",
            fault=fault,
        )
        if fault in _RESET:
            self._reset()
        elif fault in _SILENT:
            self.server.is_closing.wait(stripe.silence_seconds)
            self.close_connection = True
        else:
            if fault is Fault.SLOW:
                self.server.is_closing.wait(stripe.slow_seconds)
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        body = json.dumps(answer.body, indent=2).encode()
        lines = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Request-Id": answer.request_id,
            "Stripe-Version": self.headers.get("Stripe-Version") or API_VERSION,
        }
        if self.headers.get("Idempotency-Key"):
            lines |= {"Idempotency-Key": self.headers["Idempotency-Key"]}
            lines |= {"Original-Request": answer.original_request_id or answer.request_id}
        if answer.is_replayed:
            lines["Idempotent-Replayed"] = "true"
        if answer.status == 401:
            lines["WWW-Authenticate"] = 'Basic realm="Stripe"'
        if answer.status in {409, 429}:
            lines["Stripe-Should-Retry"] = "true"
        self.send_response(answer.status)
        for name, value in lines.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        """The connection breaks: the caller sees ECONNRESET."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _api_key(self) -> str:
        scheme, _, rest = (self.headers.get("Authorization") or "").partition(" ")
        if scheme == "Bearer":
            return rest
        if scheme == "Basic":
            return b64decode(rest).decode().partition(":")[0]
        return ""


def failure(error: WireError, request_id: str, original: str = "") -> Answer:
    shown = {**error.error, "request_log_url": f"https://dashboard.stripe.com/test/logs/{request_id}"}
    return Answer(error.status, {"error": shown}, request_id, original)
