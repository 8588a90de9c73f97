"""The train image of this source, made without a public registry.

Wheels are gathered by this interpreter's pip and served to the build. The image is kept by a tag that names what it was
made of, so only a change of its ingredients costs minutes.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contracts.executors.base_image import CACHE
from tests.contracts.executors.engine import IMAGE, import_base_image, running_engine
from tests.contracts.executors.world import World, make_world
from tests.wheels import environment_with_index

ROOT = Path(__file__).parents[3]
INGREDIENTS = [ROOT / "runtimes" / "images" / "Dockerfile.train", ROOT / "requirements.lock"]
ENGINE = CACHE / "train-engine"
WHEELS = CACHE / "wheels"
PACKAGES = [
    "torch==2.13.0",
    "bitsandbytes",
    "botocore",
    "numpy",
    "peft",
    "pyarrow",
    "safetensors",
    "tokenizers",
    "transformers",
    "accelerate",
]
PORT = 8123
BUILD_SECONDS_MAX = 900


@contextmanager
def engine_with_train_image(world: World) -> Iterator[tuple[str, str]]:
    """An engine of its own that keeps its images, and the name of the image of this source; one user at a time."""
    with _alone(), _running(world) as (address, tag):
        yield address, tag


def fill_engines(folders: Iterable[Path]) -> None:
    """Each is the folder of an engine that does not run; from its next start on that has the image, `image_tag()`.

    Its layers are hard links to those of the engine that built it, which is at once: engines never write to a layer.
    """
    mark = f"has-{image_tag().rpartition(':')[2]}"
    others = [folder for folder in folders if not (folder / mark).exists()]
    if not others:
        return
    with _alone():
        with make_world() as world, _running(world):
            pass
        for folder in others:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            subprocess.run(["cp", "--archive", ENGINE / "image", folder], check=True)
            subprocess.run(["cp", "--archive", "--link", ENGINE / "overlay2", folder], check=True)
            (folder / mark).touch()


@contextmanager
def _alone() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "train-engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # An engine mounts its folder onto itself. One that was killed leaves that, and no file is linked across mounts.
        while subprocess.run(["umount", "--quiet", ENGINE], capture_output=True, check=False).returncode == 0:
            pass
        yield


@contextmanager
def _running(world: World) -> Iterator[tuple[str, str]]:
    with running_engine(world, ENGINE) as address:
        tag = image_tag()
        if not _has_image(address, IMAGE):
            import_base_image(address)
        if not _has_image(address, tag):
            _build(world, address, tag)
        yield address, tag


def image_tag() -> str:
    """A name that contains a hash of what the image is made of."""
    digest = hashlib.sha256()
    for path in [*INGREDIENTS, *sorted((ROOT / "runtimes").rglob("*.py"))]:
        digest.update(path.read_bytes())
    return f"souk-test/train:{digest.hexdigest()[:16]}"


def _has_image(address: str, name: str) -> bool:
    asked = subprocess.run(["docker", "--host", address, "image", "inspect", name], check=False, capture_output=True)
    return asked.returncode == 0


def _build(world: World, address: str, tag: str) -> None:
    """What the Dockerfile's first lines say, with its arguments for a place without a registry."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(WHEELS), *PACKAGES]
    constraints = CACHE / "constraints.txt"
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    constraints.write_text("\n".join(line.rstrip(" \\") for line in lines if "--hash=" not in line))
    done = subprocess.run(
        [*download, "--constraint", str(constraints)],
        check=False,
        capture_output=True,
        text=True,
        env=environment_with_index(),
    )
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
