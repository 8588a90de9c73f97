"""A private container engine in a network namespace, with a small Debian image in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.executors.base_image import image_tar
from tests.contracts.executors.world import World

IMAGE = "souk-test/python:bookworm"
ENGINE_SECONDS_MAX = 60
NEEDED = ("dockerd", "debootstrap", "iptables", "ip", "nsenter", "mkfs.ext4")


def skip_without_engine(*more: str) -> None:
    """Skip the test where an engine, or one of these programs, cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("a container engine needs root")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [name for name in (*NEEDED, *more) if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (see tests/contracts/executors/README.md)")


@contextmanager
def running_engine(world: World, data: Path | None = None) -> Iterator[str]:
    """An engine in the world's network; with `data` it keeps its images there for the next time."""
    # Not below pytest's folder: a socket's path may be 107 bytes long.
    with tempfile.TemporaryDirectory(prefix="souk-engine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        address = f"unix://{folder}/docker.sock"
        with (folder / "log").open("wb") as log:
            command = engine_command(world, folder, address, data or folder / "data")
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for_engine(daemon, address, folder / "log")
            yield address
        finally:
            daemon.terminate()
            daemon.wait(ENGINE_SECONDS_MAX)
            for left in (folder / "exec" / "netns").glob("*"):  # the engine leaves its own namespace mounted
                subprocess.run(["umount", str(left)], capture_output=True, check=False)


def import_base_image(address: str) -> None:
    """Give an engine the test image."""
    command = ["docker", "--host", address, "import", str(image_tar()), IMAGE]
    subprocess.run(command, check=True, capture_output=True)


def engine_command(world: World, folder: Path, address: str, data: Path) -> list[str]:
    """In the namespace's network and this computer's file systems; with gVisor, where it is installed."""
    configuration: dict[str, Any] = {}
    if runsc := shutil.which("runsc"):
        arguments = ["--network=host", "--platform=ptrace", "--host-uds=create"]
        configuration["runtimes"] = {"runsc": {"path": runsc, "runtimeArgs": arguments}}
    (folder / "daemon.json").write_text(json.dumps(configuration))
    return [
        *[*world.inside(world.node), "dockerd", "--host", address, "--config-file", str(folder / "daemon.json")],
        *["--data-root", str(data), "--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid")],
        *["--bip", "172.29.0.1/16", "--shutdown-timeout", "2"],
    ]


def wait_for_engine(daemon: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Return once it answers; fail the test, with its log, if it does not."""
    until = time.monotonic() + ENGINE_SECONDS_MAX
    while time.monotonic() < until and daemon.poll() is None:
        asked = subprocess.run(["docker", "--host", address, "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.3)
    pytest.fail(f"dockerd did not start:\n{log.read_text()[-3000:]}")
