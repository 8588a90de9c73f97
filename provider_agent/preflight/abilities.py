"""What this computer could give jobs beyond a container: a disk of a fixed size, the internet, other nodes.

Only what the provider asked for and lacks is to be fixed; the rest is reported, with how to have it. Nothing is tried
out that would change the computer.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal

from provider_agent.preflight.finding import Finding
from provider_agent.system.capabilities import FOR_DISKS, FOR_EGRESS, FOR_GANGS, lacking
from provider_agent.system.programs import missing

MODULES: Final = Path("/lib/modules")
TUN: Final = Path("/dev/net/tun")
# What each package of Debian and its like brings.
PACKAGES: Final = {
    "mkfs.ext4": "e2fsprogs",
    "mount": "mount",
    "umount": "mount",
    "nsenter": "util-linux",
    "iptables": "iptables",
    "iptables-restore": "iptables",
    "ip": "iproute2",
    "bridge": "iproute2",
    "wg": "wireguard-tools",
    "wireguard-go": "wireguard-go",
}
BY_ROOT: Final = "run the install line with --user root"


@dataclass(frozen=True)
class DesiredSettings:
    """Whom the agent is to run as (empty: us), and what its provider asked for."""

    executor: str = "docker"
    user: str = ""
    egress: str = ""
    fabric_address: str = ""
    fabric_privacy: str = ""
    train_image: str = ""
    serve_image: str = ""
    runtime_python: str = ""
    isolation: str = ""
    is_enrolled: bool = False

    def of_node(self, folder: Path) -> DesiredSettings:
        """With what a node that is enrolled already has chosen in place of what nobody asked for now."""
        try:
            config = json.loads((folder / "config.json").read_text())
        except (OSError, ValueError):
            return self
        names = (
            "egress",
            "fabric_address",
            "fabric_privacy",
            "train_image",
            "serve_image",
            "runtime_python",
            "isolation",
        )
        chosen = {name: getattr(self, name) or str(config.get(name, "")) for name in names}
        return replace(self, **chosen, is_enrolled=True)

    def verdict(self, *, is_asked: bool) -> Literal["FIX", "SKIP"]:
        """Of what is lacking: who asked for it now must fix it; a repair of what was there before is not held up."""
        return "FIX" if is_asked and not self.is_enrolled else "SKIP"


def check_disk_limit(desired: DesiredSettings) -> Finding:
    """A disk of a fixed size for each lease: a mount."""
    name, without = "disk limit", "a job could fill this disk"
    if desired.executor != "docker":
        return Finding("SKIP", name, "processes have none")
    if why := _why_not_root(desired, FOR_DISKS):
        return Finding("SKIP", name, f"{without}: {why}", _way_to_root(desired))
    if lacks := missing(("mkfs.ext4", "mount", "umount")):
        verdict = desired.verdict(is_asked=True)
        return Finding(verdict, name, f"{without}: {', '.join(lacks)} not installed", _install(lacks))
    return Finding("PASS", name, "each lease gets a disk of its own size")


def check_egress(desired: DesiredSettings) -> Finding:
    """The internet for jobs that ask for it: rules."""
    name, without = "egress", "jobs could not be given the internet"
    if desired.executor != "docker":
        return Finding("SKIP", name, "processes use this computer's own network")
    is_asked = desired.egress == "public"
    verdict = desired.verdict(is_asked=is_asked)
    if why := _why_not_root(desired, FOR_EGRESS):
        return Finding(verdict, name, f"{without}: {why}", _way_to_root(desired))
    if lacks := missing(("iptables", "iptables-restore")):
        return Finding(verdict, name, f"{without}: no {lacks[0]}", _install(lacks))
    return Finding("PASS", name, "public addresses only" if is_asked else "jobs get none; --egress public offers it")


def check_gangs(desired: DesiredSettings) -> Finding:
    """Jobs over several nodes: interfaces, rules, and an address that the other nodes reach."""
    name, without = "gangs", "jobs over several nodes would not be placed here"
    is_asked = bool(desired.fabric_address)
    verdict = desired.verdict(is_asked=is_asked)
    if is_asked and (wrong := check_address(desired.fabric_address)):
        return replace(wrong, verdict=verdict)
    if desired.executor != "docker":
        return Finding("SKIP", name, "processes use the node's own address: nothing is hidden from the fabric")
    if why := _why_not_root(desired, FOR_GANGS):
        return Finding(verdict, name, f"{without}: {why}", _way_to_root(desired))
    privacy = desired.fabric_privacy or "wireguard"
    if lacks := missing(_programs_for(privacy)):
        return Finding(verdict, name, f"{without}: {', '.join(lacks)} not installed", _install(lacks))
    if privacy == "wireguard" and not has_module("wireguard") and not TUN.exists():
        return Finding(verdict, name, f"{without}: no WireGuard in the kernel, and no {TUN}", "modprobe tun")
    ways = "--fabric LABEL --fabric-address ADDRESS joins a fabric of your nodes"
    return Finding("PASS", name, f"{privacy}, by {desired.fabric_address}" if is_asked else ways)


def check_address(address: str) -> Finding | None:
    """What is wrong with a node's address in its fabric; None when an interface of this computer has it."""
    try:
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as tried:
            tried.bind((str(ip_address(address)), 0))  # a name, or no address at all, is none of an interface
    except ValueError:
        return Finding("FIX", "fabric address", f"{address!r} is no IP address", "write it as 10.0.0.7 or fd00::7")
    except OSError as error:
        fix = "choose an address that `ip -brief address` shows, and that your other nodes reach"
        return Finding("FIX", "fabric address", f"{address} is not one of this computer: {error.strerror}", fix)
    return None


def family_of(address: str) -> socket.AddressFamily:
    """IPv4 or IPv6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def has_module(name: str) -> bool:
    """Whether the kernel has it, or could load it."""
    if Path("/sys/module", name).exists():
        return True
    lists = (MODULES / platform.release() / each for each in ("modules.dep", "modules.builtin"))
    return any(f"/{name}.ko" in each.read_text(errors="replace") for each in lists if each.exists())


def _programs_for(privacy: str) -> Sequence[str]:
    if privacy == "plain":
        return ("ip", "nsenter", "bridge", "iptables", "iptables-restore")
    return ("ip", "nsenter", "wg", *([] if has_module("wireguard") else ["wireguard-go"]))


def _why_not_root(desired: DesiredSettings, capabilities: Iterable[str]) -> str:
    """Why the agent will not have root's powers; empty when it will."""
    try:
        is_root = (pwd.getpwnam(desired.user).pw_uid if desired.user else os.geteuid()) == 0
    except KeyError:
        is_root = False  # a user that is still to be made
    if not is_root:
        return f"the agent runs as {desired.user or pwd.getpwuid(os.geteuid()).pw_name}, not as root"
    if os.geteuid() == 0 and (without := lacking(capabilities)):
        return f"root has no {' and no '.join(without)} here (is this a container?)"
    return ""


def _way_to_root(desired: DesiredSettings) -> str:
    if os.geteuid() != 0:
        return f"as root (sudo sh in place of sh), {BY_ROOT}"
    return BY_ROOT if desired.user not in {"", "root"} else "install on the computer itself, not in a container"


def _install(programs: Iterable[str]) -> str:
    return f"apt install {' '.join(dict.fromkeys(PACKAGES[name] for name in programs))}"
