"""Keeps the updater beside an agent's service: two small systemd units that start it, or the keeper's process.

As root's it may write PREFIX and restart the agent's unit, and nothing else; the agent's user can neither.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

import psutil

from provider_agent.config import DataFolder
from provider_agent.packaging.prefix import Prefix
from provider_agent.packaging.unit import _quote as quote
from provider_agent.system.atomic import write_atomically

STOP_SECONDS_MAX: Final = 20.0
LOG_BYTES_MAX: Final = 4 * 1024 * 1024
PASSED_ON: Final = ("PIP_INDEX_URL", "PIP_CERT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy")
PASSED_ON_TOO: Final = ("no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")

HARDENED: Final = """\
CapabilityBoundingSet=CAP_DAC_READ_SEARCH
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
COMMON: Final = """\
TimeoutStartSec=7200
UMask=0022
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""


def prefix_of(program: Path) -> Prefix | None:
    """The installation that a service's program belongs to; None where install.sh did not make it."""
    root = program.parent.parent.parent
    return Prefix(root) if program == Prefix(root).program and (root / "market.json").is_file() else None


def update_units(prefix: Prefix, folder: DataFolder, name: str, *, is_system: bool) -> dict[str, str]:
    """Unit files by name: what the updater may do, and what starts it (a request, a boot, every quarter of an hour)."""
    python, root = prefix.root / "good" / "bin" / "python", quote(prefix.root)
    service = [
        "[Unit]",
        "Description=Souk agent: installs what its marketplace signed, and rolls it back if it does not check in",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart=:{quote(python)} -I -m provider_agent.updating once --prefix {root}",
        f"EnvironmentFile=-{str(prefix.root / 'updater.env').replace('%', '%%')}",
    ]
    text = "\n".join(service) + "\n" + COMMON
    if is_system:
        text += f"ReadWritePaths={root}\n" + HARDENED
    watched = str(folder.update_request).replace("%", "%%")
    wants = "multi-user.target" if is_system else "default.target"
    path = (
        f"[Unit]\nDescription=Souk agent: an update is wanted\n\n[Path]\nPathChanged={watched}\nUnit={name}.service\n"
    )
    timer = (
        "[Unit]\nDescription=Souk agent: updates that broke off\n\n[Timer]\nOnBootSec=2min\nOnUnitInactiveSec=15min\n"
    )
    return {
        f"{name}.service": text,
        f"{name}.path": path + f"\n[Install]\nWantedBy={wants}\n",
        f"{name}.timer": timer + "\n[Install]\nWantedBy=timers.target\n",
    }


def write_environment(prefix: Prefix) -> None:
    """Proxies and the package index, in a file that the agent's user cannot write: its lines reach a root's process."""
    path = prefix.root / "updater.env"
    found = {name: os.environ[name] for name in (*PASSED_ON, *PASSED_ON_TOO) if os.environ.get(name)}
    lines = [f'{name}="{value}"' for name, value in found.items() if '"' not in value and "\n" not in value]
    if lines:
        write_atomically(path, ("\n".join(lines) + "\n").encode(), mode=0o600)
    else:
        path.unlink(missing_ok=True)


def start_keeper(prefix: Prefix, folder: DataFolder) -> None:
    """In a session of its own; replaces one that runs for this node."""
    stop_keeper(prefix, folder)
    python = prefix.root / "good" / "bin" / "python"
    if not python.exists():
        return
    log = prefix.root / "updater.log"
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.unlink()
    with log.open("ab") as out:
        os.fchmod(out.fileno(), 0o600)
        process = subprocess.Popen(  # noqa: S603 - our own program
            [python, "-I", "-m", "provider_agent.updating", "keep", "--prefix", str(prefix.root), *_seconds()],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
        )
    write_atomically(_pid_file(prefix, folder), f"{process.pid}\n".encode(), mode=0o644)


def stop_keeper(prefix: Prefix, folder: DataFolder) -> None:
    """And an updater that it started; what that left half-done the next one repairs."""
    pid_file = _pid_file(prefix, folder)
    with contextlib.suppress(FileNotFoundError, ValueError, psutil.Error):
        process = psutil.Process(int(pid_file.read_text()))
        if "provider_agent.updating" in process.cmdline() and str(prefix.root) in process.cmdline():
            family = [process, *process.children(recursive=True)]
            mine = [each for each in family if "provider_agent.updating" in each.cmdline()]
            for each in mine:
                each.terminate()
            psutil.wait_procs(mine, STOP_SECONDS_MAX)
    pid_file.unlink(missing_ok=True)


def _pid_file(prefix: Prefix, folder: DataFolder) -> Path:
    return prefix.root / f"keeper-{hashlib.sha256(bytes(folder.root)).hexdigest()[:8]}.pid"


def _seconds() -> list[str]:
    """How long a new release may take to check in, where the operator of this computer says so."""
    seconds = os.environ.get("SOUK_UPDATE_SECONDS", "")
    return ["--seconds", seconds] if seconds.replace(".", "", 1).isdigit() else []
