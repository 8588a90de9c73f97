"""Each executor in turn; Docker against a real engine that these tests start and stop."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from provider_agent.executors.base import Executor
from provider_agent.executors.docker import DockerExecutor
from provider_agent.executors.process import ProcessExecutor

CACHE = Path("/var/cache/souk-tests")
IMAGE_TAR = CACHE / "bookworm-python3.tar"
IMAGE = "souk-test/python:bookworm"
ENGINE_SECONDS_MAX = 60
DEBOOTSTRAP_SECONDS_MAX = 900
NEEDED = ("dockerd", "debootstrap", "iptables")


@dataclass(frozen=True)
class Setup:
    """One executor, and the image its programs run in."""

    executor: Executor
    image: str
    python: str


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of a private container engine with the test image in it."""
    if os.geteuid() != 0:
        pytest.skip("a container engine needs root")
    missing = [name for name in NEEDED if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (see tests/contracts/executors/README.md)")
    # Not below pytest's folder: a socket's path may be 107 bytes long.
    with tempfile.TemporaryDirectory(prefix="souk-engine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        address = f"unix://{folder}/docker.sock"
        with (folder / "log").open("wb") as log:
            daemon = subprocess.Popen(_engine_command(folder, address), stdout=log, stderr=log)
        try:
            _wait_for_engine(daemon, address, folder / "log")
            subprocess.run(
                ["docker", "--host", address, "import", str(_image_tar()), IMAGE], check=True, capture_output=True
            )
            yield address
        finally:
            daemon.terminate()
            daemon.wait(ENGINE_SECONDS_MAX)


def _engine_command(folder: Path, address: str) -> list[str]:
    """No bridge: test programs have no network, and the engine leaves the node's firewall alone."""
    return [
        *["dockerd", "--host", address, "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")],
        *["--pidfile", str(folder / "pid"), "--bridge", "none", "--iptables=false", "--ip6tables=false"],
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
            command = ["debootstrap", "--variant=minbase", "--include=python3-minimal", "bookworm", f"{name}/root"]
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
        executor = DockerExecutor(engine_url=address)
        asyncio.run(executor.check())
        yield Setup(executor, IMAGE, "python3")
