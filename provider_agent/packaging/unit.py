"""The systemd unit: what the agent needs, and nothing else of the computer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provider_agent.system.capabilities import NEEDED

# For both kinds. KillMode=process: programs outlive the agent, and the next one adopts them.
COMMON: Final = """\
Restart=always
RestartSec=5
RestartPreventExitStatus=2 3 4
KillMode=process
TimeoutStopSec=60
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""
# What only the system's manager can do.
HARDENED: Final = """\
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
# A root agent with containers: each lease has a disk of a fixed size (a mount), rules, a gang's interface. The engine
# must see what it mounts, and the next agent must find what this one named below /run/netns: so no mount namespace of
# its own, and no setting that would make one (Protect..., Private..., ReadWritePaths). Devices are not listed: the
# modules of loop and of NVIDIA may be loaded later, and systemd looks their numbers up once, at the start. No
# MemoryDenyWriteExecute: NVIDIA's library, and Python's way to call it, may need such memory.
FOR_CONTAINERS: Final = f"""\
CapabilityBoundingSet={" ".join(NEEDED)}
AmbientCapabilities=
RestrictNamespaces=mnt net
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallFilter=@system-service @mount
SystemCallFilter=~@keyring chroot pivot_root userfaultfd
SystemCallErrorNumber=EPERM
"""
# Programs of the process executor run in the unit: they need their interpreter's home, and files that outlive it.
ENGINE_ONLY: Final = """\
ProtectHome=yes
PrivateTmp=yes
"""


@dataclass(frozen=True)
class Unit:
    """What one agent's unit depends on."""

    program: Path
    data: Path
    environment: Path  # proxy settings, of mode 0600
    user: str = ""  # empty: a unit of the user's own manager
    executor: str = "docker"


def unit_text(unit: Unit) -> str:
    """The unit file; `systemd-analyze verify` finds nothing wrong with it."""
    is_system = bool(unit.user)
    lines = [
        "[Unit]",
        "Description=Souk agent: rents out this computer's devices",
        "Documentation=https://github.com/gpusouk/gpusouk",
    ]
    if is_system:
        lines += ["After=network-online.target docker.service", "Wants=network-online.target"]
    lines += ["", "[Service]", "Type=exec"]
    lines.append(f"ExecStart=:{_quote(unit.program)} start --data {_quote(unit.data)}")
    lines.append(f"EnvironmentFile=-{_escape(unit.environment)}")
    if is_system:
        lines += [f"User={unit.user}"]
    text = "\n".join(lines) + "\n" + COMMON
    if unit.user == "root" and unit.executor == "docker":
        text += FOR_CONTAINERS
    elif is_system:
        text += f"ReadWritePaths={_quote(unit.data)}\n" + HARDENED
        # A home that is hidden may not hold the data or the program.
        lies_in_home = any(str(path).startswith(("/home/", "/root/")) for path in (unit.data, unit.program))
        if unit.executor == "docker" and not lies_in_home:
            text += ENGINE_ONLY
    return text + f"\n[Install]\nWantedBy={'multi-user.target' if is_system else 'default.target'}\n"


def _escape(path: Path) -> str:
    return str(path).replace("%", "%%")


def _quote(path: Path) -> str:
    """As a unit's word: percent signs doubled, in quotes if it must be. A dollar is one (`ExecStart=:`)."""
    text = _escape(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"' if any(character in text for character in " \t'\"\\;") else text
