"""runtimes/images/Dockerfile.train, really built on the test image, and a training in it under every protection.

Without a public registry: wheels are gathered by this interpreter's pip and served to the build. The image is kept by a
label that names what it was made of, so only a change of its ingredients costs minutes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from provider_agent.executors.scratch import unmount_scratch
from provider_agent.protocol import ATTEMPT_ENDS, CheckpointPolicy, Program, Reason
from tests.unit.provider_agent.conftest import Bob, eventually
from tests.unit.provider_agent.fake_server import FakeServer

from .conftest import CACHE, IMAGE, import_base_image, running_engine
from .world import World

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[3]
INGREDIENTS = [ROOT / "runtimes" / "images" / "Dockerfile.train", ROOT / "requirements.lock"]
WHEELS = CACHE / "wheels"
PACKAGES = ["torch==2.13.0", "numpy", "safetensors", "tokenizers", "transformers"]
PORT = 8123
BUILD_SECONDS_MAX = 900
TRAIN_SECONDS_MAX = 240.0
CONFIG = {"sequence_length": 32, "global_batch_size": 4, "warmup_steps": 2, "evaluate_every": 0, "steps": 8}


@pytest.fixture(scope="module")
def train_engine(world: World) -> Iterator[tuple[str, str]]:
    """An engine of its own that keeps its images, and the name of the image of this source."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "train-engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with running_engine(world, CACHE / "train-engine") as address:
            tag = f"souk-test/train:{_ingredients_hash()}"
            if not _has_image(address, IMAGE):
                import_base_image(address)
            if not _has_image(address, tag):
                _build(world, address, tag)
            yield address, tag


@pytest.fixture
def bob(train_engine: tuple[str, str], tmp_path: Path) -> Iterator[Bob]:
    """Bob's node, with that image for the built-in runtime."""
    server = FakeServer()
    server.start()
    provider = Bob(server, tmp_path / "bob")
    address, image = train_engine
    provider.enrol(executor="docker", engine_url=address, isolation="runc", train_image=image)
    provider.start()
    yield provider
    if provider.process is not None:
        provider.stop(signal.SIGKILL)
    server.stop()
    for lease_id in server.leases:
        unmount_scratch(provider.folder.lease(lease_id))


def test_train_image_trains_under_every_protection(bob: Bob) -> None:
    program = Program(runtime="train", config=CONFIG)
    policy = CheckpointPolicy(every_steps=4)
    lease = bob.server.give(bob.assignment(program=program, checkpoint=policy, stop_grace_seconds=60))
    eventually(lambda: lease.report and lease.report.state in ATTEMPT_ENDS, "the end", seconds=TRAIN_SECONDS_MAX)
    assert lease.report.reason is Reason.COMPLETED, lease.logs[-3000:]
    eventually(lambda: len(lease.events) == lease.report.event_bytes, "the last event")
    happened = [json.loads(line)["event"] for line in lease.events.splitlines()]
    assert happened[0] == "image"
    assert happened[-1] == "finished"
    assert "checkpointed" in happened
    made = [artifact for artifact in bob.server.artifacts.values() if artifact.is_complete]
    assert {artifact.begin.kind for artifact in made} == {"checkpoint", "output"}
    assert b"no capabilities" in lease.logs
    assert b"no limit" not in lease.logs


def _has_image(address: str, name: str) -> bool:
    asked = subprocess.run(["docker", "--host", address, "image", "inspect", name], check=False, capture_output=True)
    return asked.returncode == 0


def _ingredients_hash() -> str:
    digest = hashlib.sha256()
    for path in [*INGREDIENTS, *sorted((ROOT / "runtimes").rglob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(world: World, address: str, tag: str) -> None:
    """What the Dockerfile's first lines say, with its arguments for a place without a registry."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(WHEELS), *PACKAGES]
    constraints = CACHE / "constraints.txt"
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    constraints.write_text("\n".join(line.rstrip(" \\") for line in lines if "--hash=" not in line))
    done = subprocess.run([*download, "--constraint", str(constraints)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    pip_options = f"--no-index --find-links http://127.0.0.1:{PORT}/"
    build = [
        *["docker", "--host", address, "build", "--network", "host", "-f", "runtimes/images/Dockerfile.train"],
        *["--build-arg", f"BASE={IMAGE}", "--build-arg", f"PIP_OPTIONS={pip_options}", "-t", tag, "-"],
    ]
    with (
        _served(world, WHEELS),
        subprocess.Popen(
            ["tar", "-C", str(ROOT), "-c", "runtimes", "requirements.lock"], stdout=subprocess.PIPE
        ) as context,
    ):
        built = subprocess.run(
            build, check=False, stdin=context.stdout, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
        )
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]


@contextmanager
def _served(world: World, folder: Path) -> Iterator[None]:
    """A folder on the loopback of the engine's network."""
    command = [sys.executable, "-m", "http.server", str(PORT), "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(
        [*world.inside(world.node), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            yield
        finally:
            server.kill()
