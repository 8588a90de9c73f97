"""An installation as install.sh leaves it, a marketplace that signs, and agents that are real processes but only claim.

A release lies ready beside the others, so that the updater finds it whole and builds no environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provider_agent.config import DataFolder
from provider_agent.packaging.prefix import Prefix, read_claim, version_of
from provider_agent.packaging.service import is_running, restart_service
from provider_agent.protocol import RELEASE_PREFIX
from provider_agent.updating.update_request import write_update_request
from provider_agent.updating.updater import Updater

ROOT = Path(__file__).parents[4]
Manner = Literal["well", "mute", "crashes", "refused"]
AGENT = """\
#!/bin/sh
'''exec' {python} -SI "$0" "$@"
' '''
import fcntl, json, os, pathlib, signal, sys
release = pathlib.Path(sys.argv[0]).resolve().parent.parent
manner = (release / "manner").read_text()
if manner == "crashes":
    sys.exit("a bad release")
data = pathlib.Path(sys.argv[sys.argv.index("--data") + 1])
(data / "agent.ended").unlink(missing_ok=True)


def end(status):
    (data / "agent.ended").write_text(str(status))
    os._exit(status)


signal.signal(signal.SIGTERM, lambda *_: end(0))
if manner == "well":  # before the lock, which shows that it runs: who waits 0.3 s for both finds both
    claim = {{"release": release.name, "contact_at": "2026-11-22T00:00:00+00:00", "version": "x"}}
    (data / "status.part").write_text(json.dumps(claim))
    (data / "status.part").replace(data / "status.json")
lock = open(data / "agent.lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX)
if manner == "refused":  # after its start was seen, also by an updater that is late
    signal.signal(signal.SIGALRM, lambda *_: end(4))
    signal.setitimer(signal.ITIMER_REAL, 3)
while True:
    signal.pause()
"""


@dataclass
class Installation:
    """One prefix with its nodes."""

    root: Path
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    served: dict[str, bytes] = field(default_factory=dict)
    health: tuple[int, bytes] = (200, b'{"status": "ok"}')
    server: str = ""
    drip_seconds: float = 0.0  # after each eight bytes

    @property
    def prefix(self) -> Prefix:
        return Prefix(self.root / "prefix")

    def node(self, name: str) -> DataFolder:
        return DataFolder(self.root / name)

    def nodes(self) -> list[DataFolder]:
        return [DataFolder(data) for data in self.prefix.data_folders()]

    def add_release(self, version: str, manner: Manner = "well") -> Path:
        """Signed, served, and lying whole beside the others."""
        wheel = f"gpusouk-{version}-py3-none-any.whl"
        data = f"the wheel of {version}".encode()
        digest = hashlib.sha256(data).hexdigest()
        about = {"kind": "souk-agent-release", "format": 1, "wheel": wheel, "version": version, "sha256": digest}
        manifest = json.dumps(about | {"size": len(data), "server": self.server}).encode()
        self.served[f"/dist/{wheel}"] = data
        self.served[f"/dist/releases/{version}/manifest.json"] = manifest
        self.served[f"/dist/releases/{version}/manifest.sig"] = self.key.sign(RELEASE_PREFIX + manifest)
        release = self.prefix.releases / digest[:12]
        (release / "bin").mkdir(parents=True, exist_ok=True)
        (release / "manner").write_text(manner)
        program = release / "bin" / "souk-agent"
        program.write_text(AGENT.format(python=shlex.quote(sys.executable)))
        program.chmod(0o755)
        python = release / "bin" / "python"  # -I would hide where this very code lies
        python.write_text(
            f'#!/bin/sh\nshift\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -P "$@"\n'
        )
        python.chmod(0o755)
        (release / ".complete").write_text(f"{version}\n")
        return release

    def add_node(self, name: str) -> DataFolder:
        """Kept by a service, and running."""
        folder = self.node(name)
        folder.prepare()
        with (self.prefix.root / "nodes").open("a") as out:
            out.write(f"{folder.root}\n")
        (folder.root / "agent.pid").write_text("0\n")
        restart_service(folder, self.prefix.program)
        return folder

    def updater(self, seconds: float = 0.3) -> Updater:
        return Updater(self.prefix, seconds)

    def want(self, version: str, *, now: bool = False) -> None:
        write_update_request(self.nodes()[0], version, now=now)

    def links(self) -> tuple[str, str]:
        found = [self.prefix.release("current"), self.prefix.release("good")]
        assert None not in found, "a link names nothing whole"
        return version_of(found[0] or Path()), version_of(found[1] or Path())

    def is_settled(self, version: str) -> bool:
        """Everything agrees that this version runs."""
        good = self.prefix.release("good")
        releases = {str(read_claim(folder.status).get("release")) for folder in self.nodes()}
        runs = all(is_running(folder) for folder in self.nodes())
        return runs and releases == {good.name if good else ""} and self.links() == (version, version)


@contextlib.contextmanager
def installed(root: Path, *names: str) -> Iterator[Installation]:
    """0.1.0 runs on these nodes; its marketplace answers."""
    made = Installation(root)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = made.health if self.path == "/healthz" else (200, made.served.get(self.path, b""))
            self.send_response(status if body else 404)
            self.end_headers()
            for at in range(0, len(body), 8) if made.drip_seconds else []:
                self.wfile.write(body[at : at + 8])
                time.sleep(made.drip_seconds)
            if not made.drip_seconds:
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.server = f"http://127.0.0.1:{server.server_port}"
    public = made.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    made.prefix.root.mkdir(parents=True, exist_ok=True)
    (made.prefix.root / "market.json").write_text(json.dumps({"server": made.server, "public_key": public}))
    first = made.add_release("0.1.0")
    made.prefix.point("current", first)
    made.prefix.point("good", first)
    try:
        for name in names:
            made.add_node(name)
        yield made
    finally:
        server.shutdown()
        server.server_close()
        for folder in made.nodes():
            stop(folder)


def stop(folder: DataFolder) -> None:
    """As `service stop` does."""
    from provider_agent.packaging.service import _stop_in_background

    _stop_in_background(folder, lambda _: None)
