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
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from provider_agent.errors import AgentError, ExecutorFailed
from provider_agent.overlay import rules, vxlan, wireguard
from provider_agent.overlay.place import INTERFACE, PROBE_PREFIX, Overlay, name_of
from provider_agent.overlay.records import Records
from provider_agent.overlay.system import Program, System
from provider_agent.protocol import GANG_NETWORK, OverlayKind
from provider_agent.system import capabilities
from provider_agent.system.programs import missing

NEEDED: Final = ("ip", "nsenter", "cat")
PORT_SECONDS_MAX: Final = 10.0
POLL_SECONDS: Final = 0.05
RULES_SECONDS: Final = 60.0  # rules are restored so often, in case the node's firewall was loaded anew
MTU_DEFAULT: Final = 1500
NAMESPACES: Final = Path("/run/netns")  # where `ip netns` keeps its names

log = logging.getLogger(__name__)


class Overlays:
    """All of one agent's; `system` is the network namespace that has the node's address in the fabric."""

    def __init__(
        self, folder: Path, *, key_path: Path, kind: OverlayKind, address: str, system: System | None = None
    ) -> None:
        self.kind = kind
        self._records = Records(folder)
        self._key_path = key_path
        self._address = address
        self._system = system or System()
        self._lock = threading.RLock()
        self._rules_at: dict[UUID, float] = {}

    def why_not(self) -> str:
        """Why programs here can join no gang; empty when they can."""
        if not self._address:
            return "the node has no address in a fabric"
        if why := _what_is_lacking():
            return why
        try:
            if self._device_mtu() is None:
                return f"no interface here has the fabric's address {self._address}"
            self._delete_old_probes()
            probe = f"{PROBE_PREFIX}{os.getpid() % 10**8}"
            ask = wireguard.why_not if self.kind == "wireguard" else vxlan.why_not
            return rules.why_not(self._system, self._address) or ask(self._system, probe)
        except AgentError as error:
            return str(error)

    def make(self, overlay: Overlay, program: Program) -> None:
        """Give a program that was just started its interface; raises ExecutorFailed, or OSError where the record cannot
        be written, and then nothing is left of it."""
        program.require()
        self._wait_for_port(overlay.me.port, is_open=False)  # without the lock: others' networks are kept meanwhile
        with self._lock:
            self._records.write(overlay)
            try:
                self._build(overlay, program)
            except BaseException:
                self.remove(overlay.lease_id)
                raise
        log.info("The gang's network was joined. lease_id=%s kind=%s", overlay.lease_id, overlay.gang.overlay)

    def change(self, overlay: Overlay, program: Program) -> None:
        """Give a running program's gang other members; repeating it is harmless. The record comes first: should the
        agent end before the interface is there, the next one's `keep` makes it.

        Raises ExecutorFailed, or OSError where the record cannot be written.
        """
        program.require()
        with self._lock:
            self._records.write(overlay)
            self._name_namespace(overlay, program)
            self._unmake(overlay.name)
            self._build(overlay, program)
        log.info("The gang's members changed. lease_id=%s", overlay.lease_id)

    def keep(self, lease_id: UUID, program: Program, *, is_thorough: bool = False) -> None:
        """Make anew what was removed meanwhile, for a program that still runs; connections inside survive it.

        Looks at rules now and then, at the interface's address only where `is_thorough`: an agent was killed.
        """
        with self._lock:
            overlay = self._records.read(lease_id)
            if overlay is None:
                return
            if is_thorough or time.monotonic() >= self._rules_at.get(lease_id, 0.0):
                rules.install(self._system, overlay)
                self._rules_at[lease_id] = time.monotonic() + RULES_SECONDS
            is_whole = program.has_interface(INTERFACE)
            if is_thorough:
                self._name_namespace(overlay, program)
                is_whole = is_whole and _has_address(overlay)
            if is_whole:
                return
            log.warning("The gang's interface is gone and is made anew. lease_id=%s", lease_id)
            self._name_namespace(overlay, program)
            self._unmake(overlay.name)
            self._build(overlay, program)

    def remove(self, lease_id: UUID) -> None:
        """Remove whatever there is of one lease's, also where its record is damaged; raises ExecutorFailed or OSError
        while something is left, and then it is remembered."""
        with self._lock:
            if not self._records.has(lease_id):
                return
            try:
                overlay = self._records.read(lease_id)
            except ExecutorFailed as error:
                log.warning("%s What bears its lease's name is removed. lease_id=%s", error, lease_id)
                overlay = None
            if overlay is not None:
                rules.remove(self._system, overlay)
            else:
                rules.remove_any(self._system, lease_id)
            self._unmake(name_of(lease_id))
            self._records.delete(lease_id)
            self._rules_at.pop(lease_id, None)

    def has(self, lease_id: UUID) -> bool:
        """Whether one was made for this lease and not removed yet."""
        return self._records.has(lease_id)

    def sweep(self, running: Collection[UUID]) -> int:
        """Remove those of leases that are not `running`, as far as possible; returns how many were."""
        self._records.delete_partial()
        removed = 0
        for lease_id in self._records.lease_ids():
            if lease_id in running:
                continue
            log.warning("A gang's network without a program is removed. lease_id=%s", lease_id)
            try:
                self.remove(lease_id)
                removed += 1
            except (OSError, ExecutorFailed) as error:  # one may not keep the others, nor the agent from its start
                log.warning("A gang's network was not removed yet: %s lease_id=%s", error, lease_id)
        return removed

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
        self._name_namespace(overlay, program)
        self._system.run("ip", "link", "set", overlay.name, "netns", overlay.name, "name", INTERFACE)
        inside = _inside(overlay.name)
        inside.run("ip", "link", "set", INTERFACE, "up")
        self._wait_for_port(overlay.me.port, is_open=True)
        if overlay.gang.overlay == "plain":
            vxlan.add_neighbours(inside, overlay)
        address = f"{overlay.me.overlay_address}/{GANG_NETWORK.prefixlen}"
        inside.run("ip", "address", "add", address, "dev", INTERFACE)

    def _name_namespace(self, overlay: Overlay, program: Program) -> None:
        """Give the program's network namespace our name, anew: the name of an agent in a container went with it.

        The program is looked at afterwards: had it ended meanwhile, its process number could be another tenant's.
        """
        program.require()
        self._forget_namespace(overlay.name)
        self._system.run("ip", "netns", "attach", overlay.name, str(program.pid))
        try:
            program.require()
        except ExecutorFailed:
            self._forget_namespace(overlay.name)
            raise

    def _forget_namespace(self, name: str) -> None:
        if (NAMESPACES / name).exists():
            self._system.run("ip", "netns", "delete", name)

    def _unmake(self, name: str) -> None:
        """The interface, wherever it is. The engine keeps the namespace of an ended program for a while, and with it
        the interface its port; so we hold a name of it ourselves."""
        wireguard.end(name)
        self._system.asks("ip", "link", "delete", name)
        if (NAMESPACES / name).exists():
            _inside(name).asks("ip", "link", "delete", INTERFACE)
            self._forget_namespace(name)
        if self._system.asks("ip", "link", "show", name):
            raise ExecutorFailed(f"The interface {name} cannot be deleted.")

    def _delete_old_probes(self) -> None:
        """Interfaces with which agents that were killed meanwhile tried out what the kernel has."""
        for link in json.loads(self._system.run("ip", "-json", "link", "show") or "[]"):
            name = str(link["ifname"])
            pid = name.removeprefix(PROBE_PREFIX)
            if name.startswith(PROBE_PREFIX) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                self._system.asks("ip", "link", "delete", name)

    def _wait_for_port(self, port: int, *, is_open: bool) -> None:
        """wireguard-go opens its socket a moment after the interface is up, and closes it a moment after its end."""
        until = time.monotonic() + PORT_SECONDS_MAX
        while (port in self._ports_in_use()) is not is_open:
            if time.monotonic() > until:
                what = "could not be opened" if is_open else "is used by another program here"
                raise ExecutorFailed(f"The gang's UDP port {port} {what}.")
            time.sleep(POLL_SECONDS)

    def _ports_in_use(self) -> set[int]:
        """UDP ports with a listener in our namespace, from the kernel's table: the local address is second."""
        lines = self._system.run("cat", "/proc/self/net/udp", "/proc/self/net/udp6").splitlines()
        words = [line.split() for line in lines]
        return {int(each[1].rpartition(":")[2], 16) for each in words if len(each) > 1 and ":" in each[1]}

    def _device_mtu(self) -> int | None:
        """Of the interface that has the node's address in the fabric, however it is spelt; None when none has. Raises
        ExecutorFailed for an address that is none."""
        try:
            own = ip_address(self._address)
        except ValueError as error:
            raise ExecutorFailed(f"the fabric's address {self._address!r} is no IP address") from error
        for link in json.loads(self._system.run("ip", "-json", "address", "show") or "[]"):
            if any(ip_address(info["local"]) == own for info in link.get("addr_info", ()) if "local" in info):
                return int(link["mtu"])
        return None

    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(bytes.fromhex(self._key_path.read_text().strip()))


def _what_is_lacking() -> str:
    """Of the agent's powers, and of programs; empty where nothing is."""
    if os.geteuid() != 0:
        return "the agent is not root"
    if powers := capabilities.lacking(capabilities.FOR_GANGS):
        return f"the agent lacks {powers[0]}"
    absent = missing(NEEDED)
    return f"{absent[0]} is not installed" if absent else ""


def _inside(name: str) -> System:
    """The program's network namespace, by the name that we gave it."""
    return System(("nsenter", f"--net={NAMESPACES / name}"))


def _has_address(overlay: Overlay) -> bool:
    """Whether the interface is whole: its address is the last that it is given."""
    shown = _inside(overlay.name).run("ip", "-json", "address", "show", "dev", INTERFACE)
    infos = [info for link in json.loads(shown) for info in link.get("addr_info", ())]
    return any(info.get("local") == overlay.me.overlay_address for info in infos)
