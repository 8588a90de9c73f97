"""An endpoint between a wallet and the real chain, which answers truly unless a test has ordered something else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

DROP = object()  # instead of an answer: the connection ends
DRIP_SECONDS = 0.05

# Given the call and a function that calls the chain, what the endpoint answers as a whole.
Lie = Callable[[dict[str, Any], Callable[[], Any]], Any]


@dataclass
class LyingEndpoint:
    """`lies` by the method's name, "*" for all that have none of their own; `asked` counts."""

    chain_url: str
    lies: dict[str, Lie] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    drips: bool = False
    url: str = ""

    def answer(self, call: dict[str, Any]) -> Any:
        self.asked.append(call["method"])
        lie = self.lies.get(call["method"]) or self.lies.get("*")

        def true() -> Any:
            return httpx.post(self.chain_url, json=call, timeout=30).json()

        return true() if lie is None else lie(call, true)

    def say(self, method: str, result: Any) -> None:
        """From now on this is the result of the method."""
        self.lies[method] = lambda call, _: {"jsonrpc": "2.0", "id": call["id"], "result": result}

    def refuse(self, method: str, message: str) -> None:
        """From now on the method fails."""
        self.lies[method] = lambda call, _: {"jsonrpc": "2.0", "id": call["id"], "error": {"message": message}}


@contextmanager
def lying_endpoint(chain_url: str) -> Iterator[LyingEndpoint]:
    endpoint = LyingEndpoint(chain_url)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found = endpoint.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if found is DROP:
                self.close_connection = True
                return
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                for piece in [body[n : n + 1] for n in range(len(body))] if endpoint.drips else [body]:
                    self.wfile.write(piece)
                    time.sleep(DRIP_SECONDS if endpoint.drips else 0)
            except OSError:
                return  # the client has had enough

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
