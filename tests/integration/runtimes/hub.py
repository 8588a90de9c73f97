"""A hub on this computer, for what is fetched from one; the library that fetches is the real one."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import threading
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BRANCH = "feedfacefeedfacefeedfacefeedfacefeedface"  # called like a commit, of which it is none
REVISIONS = ("v1", COMMIT, BRANCH)


class Hub:
    """As much of a hub as a download needs."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        files = {path.name: path.read_bytes() for path in folder.iterdir()} | {"pytorch_model.bin": b"pickle"}
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                hub.asked.append(path)
                if path in {f"/api/models/alice/tiny/revision/{each}" for each in REVISIONS}:
                    entries = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
                    self.answer(json.dumps({"id": "alice/tiny", "sha": COMMIT, "siblings": entries}).encode())
                elif path.startswith("/api/models/alice/tiny/tree/"):
                    tree = [
                        {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                        for name, data in files.items()
                    ]
                    self.answer(json.dumps(tree).encode())
                elif path.startswith("/alice/tiny/resolve/"):
                    data = files[path.rpartition("/")[2]]
                    self.answer(data, ETag=f'"{hashlib.sha256(data).hexdigest()}"')
                else:
                    self.answer(b"{}", 404, **{"X-Error-Code": "RepoNotFound"})

            def answer(self, data: bytes, status: int = 200, **headers: str) -> None:
                self.send_response(status)
                for name, value in {"X-Repo-Commit": COMMIT, "Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data)

            def log_message(self, *_given: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        """End the server."""
        self.server.shutdown()
        self.server.server_close()

    def environment(self, home: Path) -> dict[str, str]:
        """For a process of its own: a hub's address is read when its library is loaded."""
        here = str(Path(__file__).parents[3])
        return {**os.environ, "HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "PYTHONPATH": here}
