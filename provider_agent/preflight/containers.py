"""GPUs, their driver, the container engine, and what brings both together."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provider_agent.preflight.finding import Finding, version_of

DEFAULT_SOCKET = "/var/run/docker.sock"
ENGINE_SECONDS_MAX = 5.0
TOOL_SECONDS_MAX = 15
PCI_DEVICES = Path("/sys/bus/pci/devices")
DRIVER_VERSION = Path("/proc/driver/nvidia/version")
PCI_DISPLAY = "0x03"  # the class of display controllers, whatever kind
VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, as the engine listens on."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path, self._seconds = path, seconds

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._seconds)
        self.sock.connect(self._path)


def find_vendors(devices: Path = PCI_DEVICES) -> set[str]:
    """Makers of the graphics cards on the bus, also of those without a driver."""
    found = set()
    for device in devices.glob("*"):
        try:
            if (device / "class").read_text().startswith(PCI_DISPLAY):
                found.add(VENDORS.get((device / "vendor").read_text().strip(), "another"))
        except OSError:
            continue
    return found


def check_driver(
    floors: Mapping[str, str],
    device_kind: str,
    *,
    vendors: set[str] | None = None,
    version_file: Path = DRIVER_VERSION,
) -> Finding:
    """NVIDIA's driver, where there is a card for it. Without one the node offers shares of its processor."""
    vendors = find_vendors() if vendors is None else vendors
    if device_kind == "cpu":
        return Finding("SKIP", "driver", "shares of the processor are offered (--device-kind cpu)")
    if version_file.exists():
        words = version_file.read_text().split()
        version = next((word for word in words if "." in word and len(version_of(word)) > 1), "unknown")
        floor = floors.get("nvidia-driver", "0")
        if version_of(version) < version_of(floor):
            fix = "apt install --only-upgrade nvidia-driver, then restart the computer"
            return Finding("FIX", "driver", f"NVIDIA {version}, {floor} is the least", fix)
        return Finding("PASS", "driver", f"NVIDIA {version}")
    if "NVIDIA" in vendors:
        fix = "apt install nvidia-driver (or ubuntu-drivers install), then restart the computer"
        return Finding("FIX", "driver", "there is an NVIDIA card, and its driver is not loaded", fix)
    others = " and ".join(sorted(vendors & {"AMD", "Intel"}))
    what = f"{others} graphics cannot be rented out yet" if others else "there is no graphics card"
    if device_kind == "gpu":
        fix = "put in an NVIDIA card, or offer shares of the processor: --device-kind cpu"
        return Finding("FIX", "driver", what, fix)
    return Finding("SKIP", "driver", f"{what}; the node will offer shares of its processor")


def check_engine(floors: Mapping[str, str], executor: str, *, url: str = "") -> Finding:
    """The container engine that strangers' programs are shut into."""
    if executor != "docker":
        return Finding(
            "SKIP", "engine", "the executor `process` needs none; it isolates nothing, it is for your own jobs"
        )
    path = engine_socket(url)
    if path is None:
        return Finding("SKIP", "engine", f"{url or os.environ['DOCKER_HOST']} is looked at when the node enrols")
    try:
        _, answer = ask_engine(path, "/version")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return _no_engine(path, error)
    version, floor = str(answer.get("Version", "0")), floors.get("docker", "0")
    runc = next((str(c.get("Version")) for c in answer.get("Components", []) if c.get("Name") == "runc"), "unknown")
    if version_of(version) < version_of(floor):
        fix = "apt install --only-upgrade docker.io (or docker-ce)"
        return Finding("FIX", "engine", f"Docker {version}, {floor} is the least", fix)
    return Finding("PASS", "engine", f"Docker {version}, runc {runc}")


def _no_engine(path: str, error: Exception) -> Finding:
    if isinstance(error, FileNotFoundError):
        fix = "apt install docker.io, or see https://docs.docker.com/engine/install"
        return Finding("FIX", "engine", f"there is no Docker at {path}", fix)
    if isinstance(error, PermissionError):
        user = os.environ.get("USER", "$USER")
        return Finding(
            "FIX", "engine", f"you may not use {path}", f"sudo usermod -aG docker {user}, then sign in again"
        )
    return Finding("FIX", "engine", f"{path} does not answer: {error}", "sudo systemctl start docker")


def check_toolkit(
    floors: Mapping[str, str], executor: str, *, has_gpu: bool | None = None, program: str = "nvidia-ctk"
) -> Finding:
    """What gives GPUs to containers, at a version whose known ways out of a container are closed."""
    has_gpu = "NVIDIA" in find_vendors() or DRIVER_VERSION.exists() if has_gpu is None else has_gpu
    if executor != "docker" or not has_gpu:
        return Finding("SKIP", "toolkit", "no GPU is given to a container here")
    where, floor = shutil.which(program), floors.get("nvidia-container-toolkit", "0")
    install = "apt install nvidia-container-toolkit && nvidia-ctk runtime configure && systemctl restart docker"
    if where is None:
        return Finding("FIX", "toolkit", "NVIDIA's container toolkit is not installed", install)
    done = subprocess.run(  # noqa: S603 - NVIDIA's tool, found on PATH
        [where, "--version"], capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False
    )
    version = next((word for word in done.stdout.split() if len(version_of(word)) > 1), "0")
    if version_of(version) < version_of(floor):
        fix = "apt update && apt install --only-upgrade nvidia-container-toolkit"
        return Finding("FIX", "toolkit", f"{version} lets containers out; {floor} is the least", fix)
    return Finding("PASS", "toolkit", f"NVIDIA Container Toolkit {version}")


def engine_socket(url: str = "") -> str | None:
    """The path of the engine's socket; None for an engine that is reached otherwise."""
    url = url or os.environ.get("DOCKER_HOST", "") or f"unix://{DEFAULT_SOCKET}"
    return url.removeprefix("unix://") if url.startswith("unix://") else None


def ask_engine(path: str, route: str, *, seconds: float = ENGINE_SECONDS_MAX) -> tuple[int, dict[str, Any]]:
    """Status and body of a GET to the engine's API; raises OSError, HTTPException or ValueError."""
    connection = _UnixConnection(path, seconds)
    try:
        connection.request("GET", route)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        return response.status, answer
    finally:
        connection.close()
