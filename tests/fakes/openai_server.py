"""An OpenAI-compatible service on loopback that scores given texts (`echo`), in a thread of the test's own process.

tests/fakes/engine is what the marketplace serves; this one is somebody else's: it may lie, stall, redirect and go away.
What it answers depends on the text alone, so that a test can compute the same.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("ant", "bear", "cat", "dog", "eel", "fox", "goat", "hen")
Score = Callable[[str], dict[str, list[Any]]]  # of a given text: what `logprobs` has
Fault = Callable[["Handler"], None]


@dataclass
class Service:
    """How it answers, and what it was asked; each of `faults` answers the next request in its place (None: none)."""

    address: str = ""
    key: str | None = None
    model: str = "theirs"
    has_echo: bool = True
    has_completions: bool = True
    has_beginning: bool = False  # whether a token is put before every text
    score: Score | None = None  # in place of the scores that are drawn
    seconds: float = 0.0  # that each answer takes
    faults: deque[Fault | None] = field(default_factory=deque)
    asked: list[dict[str, Any]] = field(default_factory=list)  # bodies, with `path` and `authorization`
    at_once: int = 0
    at_once_max: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Server(ThreadingHTTPServer):
    """Threads that a stalled answer holds do not hold the test."""

    daemon_threads = True
    block_on_close = False
    service: Service

    def handle_error(self, _request: Any, _address: Any) -> None:
        """A client that hangs up is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        """Answer a completion or a chat."""
        service = self.server.service
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with service.lock:
            service.asked.append({**body, "path": self.path, "authorization": self.headers.get("Authorization")})
            service.at_once += 1
            service.at_once_max = max(service.at_once_max, service.at_once)
            fault = service.faults.popleft() if service.faults else None
        try:
            if fault is not None:
                fault(self)
            else:
                time.sleep(service.seconds)
                self.send(*self.answer(service, body))
        finally:
            with service.lock:
                service.at_once -= 1

    def answer(self, service: Service, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and JSON."""
        if service.key is not None and self.headers.get("Authorization") != f"Bearer {service.key}":
            return 401, error(f"Incorrect key {self.headers.get('Authorization')}")
        if body["model"] != service.model:
            return 404, error(f"The model {body['model']} does not exist.")
        if self.path == "/v1/chat/completions":
            text = write(body["messages"][-1]["content"], body["max_tokens"], body.get("stop", ()))
            return 200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
        if self.path != "/v1/completions" or not service.has_completions:
            return 404, error("Not found.")
        prompt = body["prompt"]
        written = write(prompt, body["max_tokens"], body.get("stop", ()))
        if not (body.get("echo") and service.has_echo):
            return 200, {"choices": [{"index": 0, "text": written, "logprobs": None}]}
        logprobs = service.score(prompt) if service.score else score(prompt, has_beginning=service.has_beginning)
        for name, value in (("tokens", written), ("token_logprobs", -0.5), ("top_logprobs", {written: -0.5})):
            logprobs[name].append(value)
        return 200, {"choices": [{"index": 0, "text": prompt + written, "logprobs": logprobs}]}

    def send(self, status: int, body: Any, headers: Sequence[tuple[str, str]] = ()) -> None:
        """A whole answer; a text is sent as it is."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the test's output."""


@contextmanager
def serving(*, tls: ssl.SSLContext | None = None, **changes: Any) -> Iterator[Service]:
    """The service, as long as the block lasts; `tls`: a server's context."""
    server = Server(("127.0.0.1", 0), Handler)
    scheme = "http"
    if tls is not None:
        scheme, server.socket = "https", tls.wrap_socket(server.socket, server_side=True)
    server.service = Service(address=f"{scheme}://127.0.0.1:{server.server_address[1]}/v1", **changes)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def pieces(text: str) -> list[str]:
    """The tokens of a text: words with the blanks before them."""
    return re.findall(r"\s*\S+|\s+$", text)


def chance(before: str, token: str) -> tuple[float, float]:
    """Log-probability of a token after a text, and that of the likeliest one there."""
    drawn = int.from_bytes(sha256(f"{before}|{token}".encode()).digest()[:4], "big")
    score = -0.01 - drawn % 1000 / 100
    return score, score if drawn % 2 else score / 2


def score(text: str, *, has_beginning: bool) -> dict[str, list[Any]]:
    """What `logprobs` has of a given text."""
    tokens = ["<s>"] if has_beginning else []
    chances: list[float | None] = [None] if has_beginning else []
    tops: list[dict[str, float] | None] = [None] if has_beginning else []
    before = ""
    for token in pieces(text):
        own, best = chance(before, token)
        is_known = bool(tokens)  # nothing comes before the first one
        tokens.append(token)
        chances.append(own if is_known else None)
        tops.append(({token: own} if own == best else {"other": best, token: own}) if is_known else None)
        before += token
    return {"tokens": tokens, "token_logprobs": chances, "top_logprobs": tops}


def write(prompt: str, tokens_max: int, stops: Sequence[str]) -> str:
    """What the model writes after a prompt: words that depend on it, up to a stop."""
    drawn = sha256(prompt.encode()).digest()
    text = " ".join(WORDS[drawn[at % len(drawn)] % len(WORDS)] for at in range(min(tokens_max, 12)))
    return min((text.split(stop)[0] for stop in stops), key=len, default=text)


def error(message: str) -> dict[str, Any]:
    """An error as OpenAI writes it."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def fails(status: int, message: str = "", **headers: str) -> Fault:
    """A status other than 200; `Retry_After` becomes Retry-After."""
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return lambda handler: handler.send(status, error(message), named)


def sends(body: Any) -> Fault:
    """200 with this body."""
    return lambda handler: handler.send(200, body)


def breaks_off(handler: Handler) -> None:
    """Half of an answer, then the end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def hangs_up(body: Any, *, version: str = "HTTP/1.1", has_length: bool = False) -> Fault:
    """200 with this body some time after the headers, and then the connection's end."""

    def answer(handler: Handler) -> None:
        data = json.dumps(body).encode()
        handler.protocol_version = version
        handler.send_response(200)
        handler.send_header("Connection", "close")
        if has_length:
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        time.sleep(0.2)
        handler.wfile.write(data)
        handler.close_connection = True

    return answer


def chunks(size: bytes, data: bytes) -> Fault:
    """200 with one chunk that is said to have this size."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.close_connection = True
        with suppress(OSError):  # a client may have had enough
            handler.wfile.write(size + b"\r\n" + data)

    return answer


def trickles(handler: Handler) -> None:
    """A byte now and then, without an end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        handler.close_connection = True
