"""A package index on this machine, over HTTP as pip asks it, that can be gone a moment later."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PackageIndex:
    """Wheels by their file names; `requests` counts what arrived."""

    def __init__(self, wheels: Mapping[str, bytes]) -> None:
        self.wheels, self.requests = dict(wheels), 0
        self.answers = threading.Event()  # while it is not set, whoever asks waits
        self.answers.set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requests += 1
                index.answers.wait(60)
                body = index.answer(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/zip")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                with suppress(ConnectionError):  # whoever asked was stopped
                    self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                """Nothing: a test reads the agent's log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """For PIP_INDEX_URL."""
        return f"http://127.0.0.1:{self._server.server_port}/simple"

    def answer(self, path: str) -> bytes | None:
        """The page of one package, or one wheel."""
        name = path.rstrip("/").rpartition("/")[2]
        if path.startswith("/wheels/"):
            return self.wheels.get(name)
        found = [each for each in self.wheels if each.startswith(f"{name.replace('-', '_')}-")]
        return "".join(f'<a href="/wheels/{each}">{each}</a>' for each in found).encode() if found else None

    def close(self) -> None:
        """From now on nobody answers."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@contextmanager
def package_index(wheels: Mapping[str, bytes]) -> Iterator[PackageIndex]:
    """One that is closed at the end, if not before."""
    index = PackageIndex(wheels)
    try:
        yield index
    finally:
        index.close()
