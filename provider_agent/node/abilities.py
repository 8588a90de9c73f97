"""The doctor's report on jobs' disks, their way to the internet, other nodes, and serving; of an enrolled node.

Before enrolment preflight/abilities.py says what could be.
"""

from __future__ import annotations

import asyncio
import pwd
import socket
from collections.abc import Iterable
from typing import Any, Final

from provider_agent.assembly import build_executor
from provider_agent.config import AgentConfig, DataFolder
from provider_agent.devices.base import find_devices
from provider_agent.executors import scratch
from provider_agent.executors.firewall import Firewall
from provider_agent.journal import Journal, read_links
from provider_agent.preflight.abilities import BY_ROOT, check_address, family_of
from provider_agent.preflight.finding import Finding, guard
from provider_agent.preflight.image import check_serve_image
from provider_agent.preflight.serving import LET_SOCKETS_OUT, SOCKETS_FLAG
from provider_agent.protocol import PROBE_PORT_FIRST, PROBE_PORT_LAST, DeviceKind
from provider_agent.protocol.gangs import GANG_PORT_FIRST, GANG_PORTS

PROBE_PORTS: Final = range(PROBE_PORT_FIRST, PROBE_PORT_LAST + 1)
GANG_PORTS_UDP: Final = range(GANG_PORT_FIRST, GANG_PORT_FIRST + GANG_PORTS)
OPEN_PORTS: Final = (
    f"let TCP {PROBE_PORT_FIRST}-{PROBE_PORT_LAST} and UDP {GANG_PORTS_UDP[0]}-{GANG_PORTS_UDP[-1]} through to this "
    "address from your other nodes' (`souk provider links` names what failed)"
)


def check_abilities(folder: DataFolder, config: AgentConfig) -> list[Finding]:
    """Disk limit, egress, fabric address, gangs, serving."""
    return [
        guard("disk limit", lambda: check_disk_limit(folder, config)),
        guard("egress", lambda: check_egress(folder, config)),
        guard("fabric address", lambda: check_fabric_address(folder, config)),
        guard("gangs", lambda: check_gangs(folder, config)),
        guard("serving", lambda: check_serving(folder, config)),
    ]


def check_disk_limit(folder: DataFolder, config: AgentConfig) -> Finding:
    """Whether each lease has a disk of its own size."""
    if config.executor != "docker":
        return Finding("SKIP", "disk limit", "processes have none")
    if lesser := _lesser(folder):
        return Finding("SKIP", "disk limit", f"jobs have none: {lesser}", BY_ROOT)
    why = scratch.why_not(scratch.DISK_MIB_MIN)
    if why:
        return Finding("FIX", "disk limit", f"jobs have none: {why}", f"apt install e2fsprogs mount; {BY_ROOT}")
    return Finding("PASS", "disk limit", "each lease has a disk of its own size")


def check_egress(folder: DataFolder, config: AgentConfig) -> Finding:
    """Whether jobs that ask for the internet can be given it."""
    if config.executor != "docker" or config.egress == "none":
        return Finding("SKIP", "egress", "jobs are offered no network")
    if why := _lesser(folder) or Firewall().why_not():
        fix = "apt install iptables" if "not installed" in why else BY_ROOT
        return Finding("FIX", "egress", f"jobs get no network: {why}", fix)
    return Finding("PASS", "egress", "public addresses only")


def check_fabric_address(folder: DataFolder, config: AgentConfig) -> Finding:
    """Whether the declared address is this computer's, its ports are free, and other nodes came through to it."""
    name, address = "fabric address", config.fabric_address
    if not address:
        if config.fabric:
            fix = "enrol anew with --fabric-address, one that this computer has and your other nodes reach"
            return Finding("FIX", name, f"none is declared, but the fabric {config.fabric}", fix)
        return Finding("SKIP", name, "none is declared: the node is in no fabric")
    if wrong := check_address(address):
        return wrong
    taken = ports_in_use(address, socket.SOCK_STREAM, PROBE_PORTS)
    if taken == len(PROBE_PORTS):
        return Finding("FIX", name, f"{address}: no TCP port of {_range(PROBE_PORTS)} is free", "see: ss -ltnp")
    taken_udp = ports_in_use(address, socket.SOCK_DGRAM, GANG_PORTS_UDP)
    ports = f"free ports: TCP {len(PROBE_PORTS) - taken} of {_range(PROBE_PORTS)}, "
    ports += f"UDP {GANG_PORTS - taken_udp} of {_range(GANG_PORTS_UDP)}"
    links = _links(folder)
    failed = {peer: str(link["why"]) for peer, link in links.items() if not link["is_reached"]}
    if links and len(failed) == len(links):
        peer, why = next(iter(failed.items()))
        return Finding("FIX", name, f"{address} of this computer; no other node was reached. {peer}: {why}", OPEN_PORTS)
    seen = (
        f"{len(links) - len(failed)} of {len(links)} nodes reached" if links else "no other node measured the way yet"
    )
    return Finding("PASS", name, f"{address} of this computer; {ports}; {seen}")


def check_gangs(folder: DataFolder, config: AgentConfig) -> Finding:
    """Whether programs here can join those of other nodes."""
    if not config.fabric:
        return Finding("SKIP", "gangs", "the node is in no fabric")
    if config.executor != "docker":
        return Finding("PASS", "gangs", "processes use the node's own address: nothing is hidden from the fabric")
    without = "jobs over several nodes are not placed here"
    if lesser := _lesser(folder):
        return Finding("FIX", "gangs", f"{without}: {lesser}", BY_ROOT)
    executor = build_executor(folder, config)
    asyncio.run(executor.check())
    if why := executor.why_no_gang(has_gpus=_has_gpus(config)):
        return Finding("FIX", "gangs", f"{without}: {why}", _fix_for_gangs(why))
    return Finding("PASS", "gangs", f"{config.fabric_privacy}, by {config.fabric_address}")


def check_serving(folder: DataFolder, config: AgentConfig) -> Finding:
    """Whether models can be served here; a node without it is let for everything else."""
    executor = build_executor(folder, config)

    async def look() -> str:
        try:
            await executor.check()
            return await executor.why_no_serving(config.serve_image, has_gpus=_has_gpus(config))
        finally:
            await executor.close()

    if why := asyncio.run(look()):
        return Finding("SKIP", "serving", f"no models are served here: {why}", _fix_for_serving(why, config))
    return Finding("PASS", "serving", config.serve_image if config.executor == "docker" else executor.python())


def ports_in_use(address: str, kind: socket.SocketKind, ports: Iterable[int]) -> int:
    """How many of these ports of our own address are taken already."""
    taken = 0
    for port in ports:
        with socket.socket(family_of(address), kind) as tried:
            if kind is socket.SOCK_STREAM:  # what lingers of an ended connection blocks no port
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((address, port))
            except OSError:
                taken += 1
    return taken


def _lesser(folder: DataFolder) -> str:
    """Why the agent lacks root's powers, whichever user runs this: it runs as the owner of its data."""
    uid = folder.root.stat().st_uid
    if uid == 0:
        return ""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return f"the agent runs as {name}, not as root"


def _links(folder: DataFolder) -> dict[str, Any]:
    journal = Journal(folder.journal)
    try:
        return dict(read_links(journal))
    finally:
        journal.close()


def _has_gpus(config: AgentConfig) -> bool:
    return any(device.kind is DeviceKind.GPU for device in find_devices(config, key_prefix="doctor"))


def _fix_for_serving(why: str, config: AgentConfig) -> str:
    """The command, or what to change."""
    if config.executor != "docker":
        python = config.runtime_python
        return f"{python} -m pip install 'gpusouk[serve]'" if python else "souk-agent start"
    if SOCKETS_FLAG in why:
        return LET_SOCKETS_OUT
    return check_serve_image(config.serve_image, url=config.engine_url).fix


def _fix_for_gangs(why: str) -> str:
    """The command, or what to change."""
    fixes = {
        "not root": BY_ROOT,
        "gVisor": 'set "isolation": "runc" in config.json',
        "address": "enrol anew with --fabric-address, one that this computer has",
        "kernel has no VXLAN": 'set "fabric_privacy": "wireguard" in config.json',
    }
    packages = "apt install iproute2 util-linux iptables wireguard-tools wireguard-go"
    return next((fix for word, fix in fixes.items() if word in why), packages)


def _range(ports: range) -> str:
    return f"{ports[0]}-{ports[-1]}"
