"""Each executor in turn; Docker against a real engine that these tests start and stop."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from provider_agent.executors.base import Executor
from provider_agent.executors.docker import DockerExecutor
from provider_agent.executors.process import ProcessExecutor

from .world import World, make_world

CACHE = Path("/var/cache/souk-tests")
IMAGE_TAR = CACHE / "bookworm-python3-venv.tar"
IMAGE = "souk-test/python:bookworm"
ENGINE_SECONDS_MAX = 60
DEBOOTSTRAP_SECONDS_MAX = 900
NEEDED = ("dockerd", "debootstrap", "iptables", "ip", "nsenter", "mkfs.ext4")


@dataclass(frozen=True)
class Setup:
    """One executor, and the image its programs run in."""

    executor: Executor
    image: str
    python: str


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """A network namespace for the engine, so that its bridges and rules are not this computer's, and what is around."""
    if os.geteuid() != 0:
        pytest.skip("a container engine needs root")
    missing = [name for name in NEEDED if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (see tests/contracts/executors/README.md)")
    with make_world() as made:
        yield made


@pytest.fixture(scope="session")
def engine(world: World) -> Iterator[str]:
    """The address of a private container engine with the test image in it."""
    with running_engine(world) as address:
        import_base_image(address)
        yield address


@contextmanager
def running_engine(world: World, data: Path | None = None) -> Iterator[str]:
    """An engine in the world's network; with `data` it keeps its images there for the next time."""
    # Not below pytest's folder: a socket's path may be 107 bytes long.
    with tempfile.TemporaryDirectory(prefix="souk-engine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        address = f"unix://{folder}/docker.sock"
        with (folder / "log").open("wb") as log:
            command = _engine_command(world, folder, address, data or folder / "data")
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for_engine(daemon, address, folder / "log")
            yield address
        finally:
            daemon.terminate()
            daemon.wait(ENGINE_SECONDS_MAX)
            for left in (folder / "exec" / "netns").glob("*"):  # the engine leaves its own namespace mounted
                subprocess.run(["umount", str(left)], capture_output=True, check=False)


def import_base_image(address: str) -> None:
    """Give an engine the test image."""
    command = ["docker", "--host", address, "import", str(_image_tar()), IMAGE]
    subprocess.run(command, check=True, capture_output=True)


def _engine_command(world: World, folder: Path, address: str, data: Path) -> list[str]:
    """In the namespace's network and this computer's file systems; with gVisor, where it is installed."""
    configuration: dict[str, Any] = {}
    if runsc := shutil.which("runsc"):
        arguments = ["--network=host", "--platform=ptrace"]
        configuration["runtimes"] = {"runsc": {"path": runsc, "runtimeArgs": arguments}}
    (folder / "daemon.json").write_text(json.dumps(configuration))
    return [
        *[*world.inside(world.node), "dockerd", "--host", address, "--config-file", str(folder / "daemon.json")],
        *["--data-root", str(data), "--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid")],
        *["--bip", "172.29.0.1/16", "--shutdown-timeout", "2"],
    ]


def _wait_for_engine(daemon: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + ENGINE_SECONDS_MAX
    while time.monotonic() < until and daemon.poll() is None:
        asked = subprocess.run(["docker", "--host", address, "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.3)
    pytest.fail(f"dockerd did not start:\n{log.read_text()[-3000:]}")


def _image_tar() -> Path:
    """Debian with Python, made once on this computer."""
    if not IMAGE_TAR.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            command = [
                "debootstrap",
                "--variant=minbase",
                "--include=python3,python3-venv,ca-certificates",
                "bookworm",
                f"{name}/root",
            ]
            subprocess.run(command, check=True, capture_output=True, timeout=DEBOOTSTRAP_SECONDS_MAX)
            subprocess.run(["tar", "-C", f"{name}/root", "-cf", f"{name}/image.tar", "."], check=True)
            Path(f"{name}/image.tar").rename(IMAGE_TAR)
    return IMAGE_TAR


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def setup(request: pytest.FixtureRequest) -> Iterator[Setup]:
    """Each executor."""
    if request.param == "process":
        yield Setup(ProcessExecutor(sys.executable), "", sys.executable)
    else:
        address = request.getfixturevalue("engine")
        executor = DockerExecutor(engine_url=address, isolation="runc")
        asyncio.run(executor.check())
        yield Setup(executor, IMAGE, "python3")
