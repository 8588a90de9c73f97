"""A container engine that answers what a test says, over a real socket."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import docker

from provider_agent.executors.docker.images import ensure_image
from provider_agent.protocol import PUBLIC_REGISTRIES

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
NAME = "quay.io/alice/program:1"


class FakeEngine:
    """A container engine that answers over a real socket; what it does not know, it has not."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = unquote(self.path.partition("?")[0].partition("/v1.41")[2])
                engine.asked.append(path)
                status, body = engine.answers.get(path, (404, {"message": "No such image: of this name"}))
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815 - the name that the base class looks up

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def has(self, *digests: str) -> None:
        """The image is on the node, with these digests of its registry."""
        found = {"Id": OTHER, "RepoDigests": [f"quay.io/alice/program@{each}" for each in digests]}
        self.answers[f"/images/{NAME}/json"] = 200, found

    def publishes(self, digest: str) -> None:
        """The registry gives anyone the image, by this digest."""
        self.answers[f"/distribution/{NAME}/json"] = 200, {"Descriptor": {"digest": digest}}

    def ensure(self, name: str = NAME, registries: tuple[str, ...] | None = PUBLIC_REGISTRIES) -> None:
        """As for a job of a customer."""
        client = docker.DockerClient(f"tcp://127.0.0.1:{self.server.server_port}", version="1.41")
        ensure_image(
            client, name, report_event=lambda *_, **__: None, cancelled=threading.Event(), registries=registries
        )
        client.close()
