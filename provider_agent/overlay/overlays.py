"""The life of every gang's network on this node.

A record of each is written before anything is made, and deleted when everything is gone: whatever an agent that was
killed left behind is found by it. Everything here may be repeated. The calls block; they are made in threads.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from provider_agent.atomic import write_atomically
from provider_agent.errors import AgentError, ExecutorFailed
from provider_agent.overlay import rules, vxlan, wireguard
from provider_agent.overlay.place import INTERFACE, NAME_PREFIX, Overlay
from provider_agent.overlay.system import Program, System, missing
from provider_agent.protocol import GANG_NETWORK, OverlayKind

NEEDED: Final = ("ip", "nsenter", "cat")
PORT_SECONDS_MAX: Final = 10.0
POLL_SECONDS: Final = 0.05
RULES_SECONDS: Final = 60.0  # rules are put back so often, in case that somebody's firewall was loaded anew
MTU_DEFAULT: Final = 1500
NAMESPACES: Final = Path("/run/netns")  # where `ip netns` keeps its names

log = logging.getLogger(__name__)


class Overlays:
    """All of one agent's; `system` is the network namespace that has the node's address in the fabric."""

    def __init__(
        self, folder: Path, *, key_path: Path, kind: OverlayKind, address: str, system: System | None = None
    ) -> None:
        self.kind = kind
        self._folder = folder
        self._key_path = key_path
        self._address = address
        self._system = system or System()
        self._lock = threading.RLock()
        self._rules_at: dict[UUID, float] = {}

    def why_not(self) -> str:
        """Why programs here can join no gang; empty when they can."""
        if not self._address:
            return "the node has no address in a fabric"
        if os.geteuid() != 0:
            return "the agent is not root"
        if lacking := missing(NEEDED):
            return f"{lacking[0]} is not installed"
        try:
            if self._device_mtu() is None:
                return f"no interface here has the fabric's address {self._address}"
            probe = f"{NAME_PREFIX}p{os.getpid() % 10**8}"
            why = wireguard.why_not if self.kind == "wireguard" else vxlan.why_not
            return why(self._system, probe)
        except AgentError as error:
            return str(error)

    def make(self, overlay: Overlay, program: Program) -> None:
        """Give a program that was just started its interface; raises ExecutorFailed, and then nothing is left of it."""
        program.require()
        with self._lock:
            self._wait_for_port(overlay.me.port, is_open=False)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            record = json.dumps(overlay.as_dict()).encode()
            write_atomically(self._record(overlay.lease_id), record, mode=0o600)
            try:
                self._build(overlay, program)
            except BaseException:
                self.remove(overlay.lease_id)
                raise
        log.info("The gang's network was joined. lease_id=%s kind=%s", overlay.lease_id, overlay.gang.overlay)

    def keep(self, lease_id: UUID, program: Program, *, is_thorough: bool = False) -> None:
        """Make anew what has gone meanwhile, for a program that still runs; connections inside survive it.

        Looks at rules now and then, at the interface's address only where `is_thorough`: an agent was killed.
        """
        with self._lock:
            overlay = self._load(lease_id)
            if overlay is None:
                return
            if is_thorough or time.monotonic() >= self._rules_at.get(lease_id, 0.0):
                rules.install(self._system, overlay)
                self._rules_at[lease_id] = time.monotonic() + RULES_SECONDS
            is_whole = program.has_interface(INTERFACE) and (not is_thorough or _has_address(overlay))
            if is_whole:
                return
            log.warning("The gang's interface is gone and is made anew. lease_id=%s", lease_id)
            program.require()
            self._unmake(overlay)
            self._build(overlay, program)

    def remove(self, lease_id: UUID) -> None:
        """Remove whatever there is of one lease's."""
        with self._lock:
            overlay = self._load(lease_id)
            if overlay is None:
                return
            rules.remove(self._system, overlay)
            self._unmake(overlay)
            self._record(lease_id).unlink(missing_ok=True)
            self._rules_at.pop(lease_id, None)

    def has(self, lease_id: UUID) -> bool:
        """Whether one was made for this lease and not removed yet."""
        return self._record(lease_id).exists()

    def sweep(self, running: Collection[UUID]) -> int:
        """Remove those of leases that are not `running`; returns how many."""
        orphans = [UUID(path.stem) for path in self._folder.glob("*.json") if UUID(path.stem) not in running]
        for lease_id in orphans:
            log.warning("A gang's network without a program is removed. lease_id=%s", lease_id)
            self.remove(lease_id)
        return len(orphans)

    # --- steps

    def _build(self, overlay: Overlay, program: Program) -> None:
        """Rules; the interface here, with its members; into the program; up; at last its address: it is whole."""
        rules.install(self._system, overlay)
        self._rules_at[overlay.lease_id] = time.monotonic() + RULES_SECONDS
        if overlay.gang.overlay == "wireguard":
            wireguard.make(self._system, overlay, self._key())
            overhead = wireguard.OVERHEAD_BYTES
        else:
            vxlan.make(self._system, overlay)
            overhead = vxlan.OVERHEAD_BYTES
        mtu = (self._device_mtu() or MTU_DEFAULT) - overhead
        self._system.run("ip", "link", "set", overlay.name, "mtu", str(mtu))
        self._system.run("ip", "netns", "attach", overlay.name, str(program.pid))
        self._system.run("ip", "link", "set", overlay.name, "netns", overlay.name, "name", INTERFACE)
        inside = _inside(overlay)
        inside.run("ip", "link", "set", INTERFACE, "up")
        self._wait_for_port(overlay.me.port, is_open=True)
        if overlay.gang.overlay == "plain":
            vxlan.add_neighbours(inside, overlay)
        address = f"{overlay.me.overlay_address}/{GANG_NETWORK.prefixlen}"
        inside.run("ip", "address", "add", address, "dev", INTERFACE)

    def _unmake(self, overlay: Overlay) -> None:
        """The interface, wherever it is. The engine keeps the namespace of an ended program for a while, and with it
        the interface its port; so we hold a name of it ourselves."""
        wireguard.end(overlay.name)
        self._system.asks("ip", "link", "delete", overlay.name)
        if (NAMESPACES / overlay.name).exists():
            _inside(overlay).asks("ip", "link", "delete", INTERFACE)
            self._system.asks("ip", "netns", "delete", overlay.name)

    def _wait_for_port(self, port: int, *, is_open: bool) -> None:
        """wireguard-go opens its socket a moment after the interface is up, and closes it a moment after its end."""
        until = time.monotonic() + PORT_SECONDS_MAX
        while (port in self._ports_in_use()) is not is_open:
            if time.monotonic() > until:
                what = "could not be opened" if is_open else "is used by another program here"
                raise ExecutorFailed(f"The gang's UDP port {port} {what}.")
            time.sleep(POLL_SECONDS)

    def _ports_in_use(self) -> set[int]:
        """UDP ports that somebody listens on in our namespace, from the kernel's table: the local address is second."""
        lines = self._system.run("cat", "/proc/self/net/udp", "/proc/self/net/udp6").splitlines()
        words = [line.split() for line in lines]
        return {int(each[1].rpartition(":")[2], 16) for each in words if len(each) > 1 and ":" in each[1]}

    def _device_mtu(self) -> int | None:
        """Of the interface that has the node's address in the fabric; None when none has."""
        for link in json.loads(self._system.run("ip", "-json", "address", "show") or "[]"):
            if any(info.get("local") == self._address for info in link.get("addr_info", ())):
                return int(link["mtu"])
        return None

    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(bytes.fromhex(self._key_path.read_text().strip()))

    def _record(self, lease_id: UUID) -> Path:
        return self._folder / f"{lease_id}.json"

    def _load(self, lease_id: UUID) -> Overlay | None:
        try:
            data: dict[str, Any] = json.loads(self._record(lease_id).read_text())
        except FileNotFoundError:
            return None
        return Overlay.from_dict(data)


def _inside(overlay: Overlay) -> System:
    """The program's network namespace, by the name that we gave it."""
    return System(("nsenter", f"--net={NAMESPACES / overlay.name}"))


def _has_address(overlay: Overlay) -> bool:
    """Whether the interface is whole: its address is the last that it is given."""
    if not (NAMESPACES / overlay.name).exists():
        return False
    shown = _inside(overlay).run("ip", "-json", "address", "show", "dev", INTERFACE)
    infos = [info for link in json.loads(shown) for info in link.get("addr_info", ())]
    return any(info.get("local") == overlay.me.overlay_address for info in infos)
