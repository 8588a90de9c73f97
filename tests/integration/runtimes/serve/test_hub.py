"""A model is fetched from a hub at its revision, only what an engine reads, with progress."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FIND = """
import sys
from pathlib import Path
from runtimes.contract import EventWriter
from runtimes.serve.config import Source
from runtimes.serve.weights import find_model
here = Path(".")
model = find_model(Source("hub", sys.argv[1]), input_dir=here, lent_dir=here, events=EventWriter("events.jsonl"))
print(model.folder, *sorted(path.name for path in model.folder.iterdir()))
"""


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
                if path == "/api/models/alice/tiny/revision/v1":
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


@pytest.fixture
def hub(llama: Path) -> Iterator[Hub]:
    made = Hub(llama)
    yield made
    made.server.shutdown()
    made.server.server_close()


def find(hub: Hub, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a hub's address is read when its library is loaded."""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[4])
    return subprocess.run(
        [sys.executable, "-c", FIND, name], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_model_comes_at_its_revision_without_what_could_run_code(hub: Hub, tmp_path: Path) -> None:
    done = find(hub, "alice/tiny@v1", tmp_path)
    assert done.returncode == 0, done.stderr
    folder, *names = done.stdout.split()
    assert folder.endswith(COMMIT)
    assert names == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert not any(path.endswith(".bin") for path in hub.asked)
    stages = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {event["stage"] for event in stages} == {"fetch", "verify"}


def test_model_that_is_not_there_is_named(hub: Hub, tmp_path: Path) -> None:
    done = find(hub, "alice/other", tmp_path)
    assert "BadModel: alice/other cannot be fetched from the hub" in done.stderr
