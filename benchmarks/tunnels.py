"""The route from a gateway to a replica behind NAT: directly (were there no NAT), by `ssh -R`, by our tunnel.

Everything is encrypted: TLS, SSH, the tunnel over TLS. On loopback, and over a line of our own (`wan.py`: 50 ms there
and back, 100 Mbit/s, a queue of 0.4 s). The engine answers constantly and at once, so that the route alone is measured;
the gateway's end is one process with the clients in it, the same for all. In turns; medians over the rounds.

    clients_N     N clients, each asking again as soon as it has its answer
    streams       64 answers of 200 tokens at once, each token written alone, as quickly as they go
    large         one large answer, alone
    behind_large  small answers while two large ones come by the same route

    python -m benchmarks.tunnels [--rounds 1] [--seconds 2] [--only loopback] [--write]

Needs root, sshd and /dev/net/tun.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from benchmarks.setups import wan
from benchmarks.setups.tunnels_ends import (
    CERTIFICATE,
    ENGINE_PORT,
    ENGINE_TLS_PORT,
    FORWARDED_PORT,
    GATEWAY_KEY,
    GATEWAY_PORT,
    SSH_PORT,
)

SUBJECTS = ("direct", "ssh", "tunnel")
ROUND_TRIP_MS, MBIT = 50, 100
LARGE_MIB = {"loopback": 64, "wan": 8}
MEASURE_SECONDS_MAX = 120
START_SECONDS = 1.5
SSHD = """
Port {port}
ListenAddress 0.0.0.0
HostKey {folder}/host
AuthorizedKeysFile {folder}/node.pub
StrictModes no
UsePAM no
PasswordAuthentication no
AllowTcpForwarding remote
PermitListen 127.0.0.1:{forwarded}
PermitTTY no
X11Forwarding no
MaxSessions 0
PidFile none
"""


def main() -> None:
    """Both lines, all subjects, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each number of clients")
    parser.add_argument("--only", choices=["loopback", "wan"])
    arguments, _ = parser.parse_known_args()
    figures: dict[str, Any] = {"round_trip_ms": ROUND_TRIP_MS, "mbit_per_s": MBIT, "rounds": arguments.rounds}
    for line in [arguments.only] if arguments.only else ["loopback", "wan"]:
        with laid(line) as ends:
            figures[line] = measure_all(line, ends, arguments.rounds, arguments.seconds)
    figures["load_of_others"] = round(os.getloadavg()[0], 1)
    publish("tunnels", figures)


class Ends:
    """Where the gateway's and the provider's processes are started, and how each is reached by the other."""

    def __init__(self, gateway: str, provider: str, *, name: str = "") -> None:
        self.gateway, self.provider, self._name = gateway, provider, name

    def at(self, end: int, *words: str | Path) -> list[str]:
        """A command line for one end: 0 the gateway's, 1 the provider's."""
        inside = ["ip", "netns", "exec", wan.namespace(self._name, end)] if self._name else []
        return [*inside, *map(str, words)]


@contextlib.contextmanager
def laid(line: str) -> Iterator[Ends]:
    """The line is there."""
    if line == "loopback":
        yield Ends("127.0.0.1", "127.0.0.1")
        return
    name = f"souk-wan-{os.getpid()}"
    words = [sys.executable, "-m", "benchmarks.setups.wan", name, str(ROUND_TRIP_MS / 2), str(MBIT)]
    carrier = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert carrier.stdout is not None
        if carrier.stdout.readline().strip() != "ready":
            raise SystemExit("the line could not be laid")
        yield Ends(wan.address(0), wan.address(1), name=name)
    finally:
        carrier.kill()
        carrier.wait()
        wan.take_up(name)


def measure_all(line: str, ends: Ends, rounds: int, seconds: float) -> dict[str, Any]:
    """Medians of the rounds, by subject."""
    found: dict[str, list[dict[str, Any]]] = {subject: [] for subject in SUBJECTS}
    with tempfile.TemporaryDirectory(prefix="souk-tunnels-") as name:
        folder = Path(name)
        make_keys(folder, ends)
        with started(ends.at(1, *ours("engine", folder))):
            for _ in range(rounds):
                for subject in SUBJECTS:
                    found[subject].append(one(subject, folder, ends, seconds, LARGE_MIB[line]))
    return {subject: median_of(figures) for subject, figures in found.items()}


def one(subject: str, folder: Path, ends: Ends, seconds: float, large_mib: int) -> dict[str, Any]:
    """One subject once, with whatever it needs started before and ended after."""
    address = {
        "direct": f"https://{ends.provider}:{ENGINE_TLS_PORT}",
        "ssh": f"http://127.0.0.1:{FORWARDED_PORT}",
        "tunnel": ends.gateway,
    }[subject]
    with contextlib.ExitStack() as stack:
        if subject == "ssh":
            stack.enter_context(started(ends.at(0, "/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd.conf")))
            stack.enter_context(started(ends.at(1, *ssh(folder, ends.gateway))))
        if subject == "tunnel":
            key = GATEWAY_KEY.public_key().public_bytes_raw().hex()
            words: Sequence[str | Path] = ours("agent", folder, f"wss://{ends.gateway}:{GATEWAY_PORT}", key)
            trusting = os.environ | {"SSL_CERT_FILE": str(folder / CERTIFICATE)}
            stack.enter_context(started(ends.at(1, *words), env=trusting))
        words = ends.at(0, *ours("measure", subject, folder, address, str(seconds), str(large_mib)))
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=MEASURE_SECONDS_MAX)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def ours(*words: str | Path) -> list[str | Path]:
    """A process of tunnels_ends."""
    return [sys.executable, "-m", "benchmarks.setups.tunnels_ends", *words]


def ssh(folder: Path, gateway: str) -> list[str | Path]:
    """The agent's side of a reverse forwarding, as an agent would start it."""
    options = (
        f"UserKnownHostsFile={folder}/known",
        "StrictHostKeyChecking=yes",
        "ExitOnForwardFailure=yes",
        "ServerAliveInterval=5",
        "IdentitiesOnly=yes",
        "Compression=no",
    )
    flags = [word for option in options for word in ("-o", option)]
    forward = f"127.0.0.1:{FORWARDED_PORT}:127.0.0.1:{ENGINE_PORT}"
    return [
        "ssh",
        "-N",
        "-F",
        "none",
        "-i",
        folder / "node",
        "-p",
        str(SSH_PORT),
        *flags,
        "-R",
        forward,
        f"root@{gateway}",
    ]


def make_keys(folder: Path, ends: Ends) -> None:
    """SSH's on both sides, each pinned by the other, and one certificate for both addresses."""
    for name in ("host", "node"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "known").write_text(f"[{ends.gateway}]:{SSH_PORT} {(folder / 'host.pub').read_text()}")
    (folder / "sshd.conf").write_text(SSHD.format(port=SSH_PORT, folder=folder, forwarded=FORWARDED_PORT))
    Path("/run/sshd").mkdir(exist_ok=True)
    names = f"subjectAltName=IP:{ends.gateway},IP:{ends.provider}"
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files: list[str | Path] = ["-keyout", key, "-out", certificate, "-subj", "/CN=gateway", "-addext", names]
    subprocess.run([*words, *files], check=True, capture_output=True)
    (folder / CERTIFICATE).write_bytes(key.read_bytes() + certificate.read_bytes())


@contextlib.contextmanager
def started(words: Sequence[str], env: dict[str, str] | None = None) -> Iterator[None]:
    """A process for as long as it is needed."""
    process = subprocess.Popen(words, env=env)
    time.sleep(START_SECONDS)
    try:
        if process.poll() is not None:
            raise SystemExit(f"it ended: {' '.join(words)}")
        yield
    finally:
        process.kill()
        process.wait()


def median_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Figure by figure."""
    return {
        name: {key: statistics.median(figures[name][key] for figures in rounds) for key in rounds[0][name]}
        for name in rounds[0]
    }


if __name__ == "__main__":
    main()
