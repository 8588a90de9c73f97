"""The encrypted kind. A non-member has no accepted key, and reads only ciphertext.

Each two members share a further key, derived from what only they can compute and from the attempt: a node's
key serves all its gangs, and this is what prevents handshakes between interfaces of different gangs.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from provider_agent.errors import ExecutorFailed
from provider_agent.overlay.place import Overlay
from provider_agent.overlay.system import System
from provider_agent.system.programs import SYSTEM_PATH, missing

SOCKETS: Final = Path("/var/run/wireguard")  # where wireguard-go listens for `wg`; the way to end it, too
TUN: Final = Path("/dev/net/tun")
OVERHEAD_BYTES: Final = 80  # of each packet, over IPv6
KEEPALIVE_SECONDS: Final = 25
READY_SECONDS_MAX: Final = 10.0
POLL_SECONDS: Final = 0.05
KEY_LABEL: Final = b"souk-gang-v1"


def why_not(system: System, probe: str) -> str:
    """Why this kind is not available here; empty when it is. `probe`: an unused interface name."""
    if lacking := missing(["wg"]):
        return f"{lacking[0]} is not installed (wireguard-tools)"
    if system.asks("ip", "link", "add", probe, "type", "wireguard"):
        system.asks("ip", "link", "delete", probe)
        return ""
    if missing(["wireguard-go"]):
        return "the kernel has no WireGuard, and wireguard-go is not installed"
    return "" if TUN.exists() else f"the kernel has no WireGuard, and there is no {TUN}"


def make(system: System, overlay: Overlay, key: X25519PrivateKey) -> None:
    """Make the interface, with its key and its peers. wireguard-go, where it is needed, outlives the agent."""
    if not system.asks("ip", "link", "add", overlay.name, "type", "wireguard"):
        _start_daemon(system, overlay.name)
    text, until = configuration(overlay, key), time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            system.run("wg", "setconf", overlay.name, "/dev/stdin", text=text, is_secret=True)
        except ExecutorFailed:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_SECONDS)  # wireguard-go of a gang that just ended may hold the port for a moment
        else:
            return


def end(name: str) -> None:
    """End the interface's wireguard-go, if it has one: it ends when its socket is removed."""
    with contextlib.suppress(FileNotFoundError):
        (SOCKETS / f"{name}.sock").unlink()


def configuration(overlay: Overlay, key: X25519PrivateKey) -> str:
    """What `wg setconf` reads. Raises ExecutorFailed for a member's key that is none."""
    lines = ["[Interface]", f"PrivateKey = {_base64(key.private_bytes_raw())}", f"ListenPort = {overlay.me.port}"]
    for member in overlay.others:
        public = bytes.fromhex(member.public_key)
        lines += [
            "[Peer]",
            f"PublicKey = {_base64(public)}",
            f"PresharedKey = {_base64(pair_key(key, public, overlay.attempt_id))}",
            f"Endpoint = {endpoint(member.address, member.port)}",
            f"AllowedIPs = {member.overlay_address}/32",
            f"PersistentKeepalive = {KEEPALIVE_SECONDS}",
        ]
    return "\n".join(lines) + "\n"


def pair_key(key: X25519PrivateKey, public: bytes, attempt_id: UUID) -> bytes:
    """32 bytes that only both ends of a pair can compute; different in every attempt (HKDF, RFC 5869)."""
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise ExecutorFailed("The gang's network cannot be made: a member's key is none.") from error
    return HKDF(SHA256(), length=32, salt=attempt_id.bytes, info=KEY_LABEL).derive(shared)


def endpoint(address: str, port: int) -> str:
    """Address and port as `wg` reads them."""
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"


def _start_daemon(system: System, name: str) -> None:
    """wireguard-go goes into the background by itself, in a session of its own."""
    if missing(["wireguard-go"]):
        raise ExecutorFailed("The gang's network cannot be made: wireguard-go is not installed.")
    try:
        subprocess.run(  # noqa: S603 - a fixed program
            [*system.prefix, "wireguard-go", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=READY_SECONDS_MAX,
            env={"PATH": SYSTEM_PATH},
            cwd=os.sep,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ExecutorFailed("The gang's network cannot be made: wireguard-go did not start.") from error
    until = time.monotonic() + READY_SECONDS_MAX
    while not system.asks("wg", "show", name, "listen-port"):
        if time.monotonic() > until:
            end(name)
            raise ExecutorFailed("The gang's network cannot be made: wireguard-go does not answer.")
        time.sleep(POLL_SECONDS)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
