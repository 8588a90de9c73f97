"""A registry that gives manifests by their digests to whoever got a token, over a real socket."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from provider_agent.executors.docker.manifests import require_no_addresses
from tests.unit.provider_agent.images.engine import NAME


class FakeRegistry:
    """Has the manifests that were added; `asked` is the paths of what came."""

    def __init__(self) -> None:
        self.manifests: dict[str, bytes] = {}
        self.status = 200
        self.realm = ""
        self.asked: list[str] = []
        self.pause_seconds = 0.0  # before each byte
        self.is_cut = False  # a body ends before it should
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                registry.asked.append(path)
                if path == "/token":
                    assert query == "service=here&scope=repository%3Aalice%2Fprogram%3Apull"
                    return self.answer(200, json.dumps({"token": "read"}).encode())
                if self.headers.get("Authorization") != "Bearer read":
                    return self.answer(401, b"{}")
                digest = path.removeprefix("/v2/alice/program/manifests/")
                return self.answer(registry.status, registry.manifests[digest])

            def answer(self, status: int, data: bytes) -> None:
                self.send_response(status)
                said = f'Bearer realm="{registry.realm}",service="here",scope="repository:alice/program:pull"'
                self.send_header("WWW-Authenticate", said)
                self.send_header("Location", f"{registry.origin}/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if registry.is_cut:
                    self.wfile.write(data[:-1])
                    return
                if not registry.pause_seconds:
                    self.wfile.write(data)
                    return
                with contextlib.suppress(OSError):
                    for byte in data:
                        self.wfile.write(bytes([byte]))
                        time.sleep(registry.pause_seconds)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.realm = f"{self.origin}/token"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, manifest: Any) -> str:
        """Its digest. Bytes are taken as they are."""
        data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.manifests[digest] = data
        return digest

    def index(self, *entries: dict[str, Any]) -> str:
        return self.add({"schemaVersion": 2, "manifests": list(entries)})

    def check(self, digest: str, architecture: str = "x86_64", *, cancelled: threading.Event | None = None) -> None:
        require_no_addresses(NAME, digest, architecture=architecture, origin=self.origin, cancelled=cancelled)
