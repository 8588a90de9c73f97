"""Images from a real registry: pulled with progress, named by digest, given up in time."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest

from provider_agent.errors import ImageUnavailable
from provider_agent.executors.base import LaunchSpec
from provider_agent.executors.docker import DockerExecutor, images
from tests.contracts.executors.world import World

pytestmark = pytest.mark.docker

PORT, SILENT_PORT = 5000, 5001
READY_SECONDS_MAX = 20.0
PAYLOAD_BYTES = 12 * 1024**2
CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
validation: {{manifests: {{urls: {{allow: ["^http://192[.]168[.]1[.]1/"]}}}}}}
"""
# In the registry's network: reads an image's manifest, and that of another one that names an address for a layer.
READER = """
import json, sys, requests
from provider_agent.errors import ImageUnavailable
from provider_agent.executors.docker.manifests import require_no_addresses

name, digest, origin = sys.argv[1:]
require_no_addresses(name, digest, architecture='x86_64', origin=origin)
base = origin + '/v2/alice/shell/manifests/'
kind = 'application/vnd.docker.distribution.manifest.v2+json'
manifest = requests.get(base + digest, headers={'Accept': kind}, timeout=10).json()
foreign = {
    'mediaType': 'application/vnd.docker.image.rootfs.foreign.diff.tar.gzip',
    'digest': 'sha256:' + 'c' * 64, 'size': 1, 'urls': ['http://192.168.1.1/reboot'],
}
manifest['layers'].append(foreign)
put = requests.put(base + 'bad', data=json.dumps(manifest), headers={'Content-Type': kind}, timeout=10)
put.raise_for_status()
try:
    require_no_addresses(name, put.headers['Docker-Content-Digest'], architecture='x86_64', origin=origin)
except ImageUnavailable as error:
    print(error)
"""
SILENT = """
import socket, time
listener = socket.create_server(('127.0.0.1', 5001))
print('ready', flush=True)
held = []
while True: held.append(listener.accept())
"""


@dataclass(frozen=True)
class Published:
    """An image that the registry has and the engine has not."""

    tag: str
    digest: str
    executor: DockerExecutor
    engine: docker.DockerClient

    @property
    def by_digest(self) -> str:
        return f"{self.tag.rpartition(':')[0]}@{self.digest}"


@pytest.fixture(scope="module")
def published(engine: str, world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """A small image, pushed to a registry beside the engine."""
    if shutil.which("docker-registry") is None:
        pytest.skip("not installed: docker-registry")
    folder = tmp_path_factory.mktemp("registry")
    (folder / "config.yml").write_text(CONFIG.format(folder=folder / "data", port=PORT))
    with _running(world, "docker-registry", "serve", str(folder / "config.yml")):
        client = docker.DockerClient(base_url=engine)
        name = f"127.0.0.1:{PORT}/alice/shell"
        client.api.import_image_from_data(_small_image(), repository=name, tag="1")
        digest = _push(client, name)
        client.images.remove(f"{name}:1", force=True)
        yield Published(f"{name}:1", digest, DockerExecutor(engine_url=engine, isolation="runc"), client)
        client.close()


@pytest.fixture
def published_anew(published: Published) -> Iterator[Published]:
    """The same, after whatever a test pulled is gone."""
    yield published
    for image in published.engine.images.list(name=published.tag.rpartition(":")[0]):
        published.engine.images.remove(image.id, force=True)


def test_pull_reports_bytes_and_the_digest_that_runs(published_anew: Published, tmp_path: Path) -> None:
    events = ready(published_anew, published_anew.tag)
    pulling = [data for event, data in events if event == "pulling"]
    assert pulling[-1]["bytes"] == pulling[-1]["bytes_total"] > PAYLOAD_BYTES
    assert events[-1] == ("image", {"image": published_anew.tag, "digest": published_anew.digest})
    spec = launch(published_anew.tag, tmp_path)
    handle = asyncio.run(published_anew.executor.start(spec))
    container = published_anew.engine.containers.get(handle["container"])
    assert container.attrs["Image"] == published_anew.engine.images.get(published_anew.by_digest).id
    assert container.wait(timeout=30)["StatusCode"] == 0
    asyncio.run(published_anew.executor.cleanup(handle))


def test_image_named_by_its_digest_is_that_image(published_anew: Published) -> None:
    events = ready(published_anew, published_anew.by_digest)
    assert events[-1] == ("image", {"image": published_anew.by_digest, "digest": published_anew.digest})


def test_image_that_is_here_is_not_pulled_again(published_anew: Published) -> None:
    ready(published_anew, published_anew.tag)
    assert [event for event, _ in ready(published_anew, published_anew.tag)] == ["image"]


def test_digest_that_the_registry_does_not_have_is_refused(published_anew: Published) -> None:
    wrong = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(ImageUnavailable, match="manifest"):
        ready(published_anew, f"{published_anew.tag.rpartition(':')[0]}@sha256:{wrong}")


def test_image_larger_than_the_node_takes_is_refused(
    published_anew: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "IMAGE_BYTES_MAX", PAYLOAD_BYTES // 2)
    with pytest.raises(ImageUnavailable, match="this node takes"):
        ready(published_anew, published_anew.tag)


def test_manifest_of_a_real_registry_is_read_and_one_with_an_address_refused(
    published: Published, world: World
) -> None:
    command = [sys.executable, "-c", READER, published.tag, published.digest, f"http://127.0.0.1:{PORT}"]
    read = subprocess.run(
        [*world.inside(world.node), *command], capture_output=True, text=True, check=False, timeout=60
    )
    assert (read.returncode, read.stderr) == (0, "")
    assert "names addresses of its own for its parts" in read.stdout


def test_registry_that_says_nothing_is_given_up(
    published: Published, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "PULL_SILENT_SECONDS_MAX", 1.0)
    with _running(world, "python3", "-c", SILENT, ready="ready"), pytest.raises(ImageUnavailable, match="timed out"):
        ready(published, f"127.0.0.1:{SILENT_PORT}/alice/shell:1")


def test_pull_can_be_cancelled(published: Published, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "PULL_SILENT_SECONDS_MAX", 8.0)

    async def cancelled_after() -> float:
        spec = launch(f"127.0.0.1:{SILENT_PORT}/alice/shell:1", Path("/nowhere"))
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(published.executor.ready(spec, lambda event, **data: None), 0.3)
        return time.monotonic() - started

    with _running(world, "python3", "-c", SILENT, ready="ready"):
        assert asyncio.run(cancelled_after()) < 6.0


def ready(published: Published, image: str) -> list[tuple[str, dict[str, Any]]]:
    """Pull the image; returns the reported progress."""
    events: list[tuple[str, dict[str, Any]]] = []
    spec = launch(image, Path("/nowhere"))
    asyncio.run(published.executor.ready(spec, lambda event, **data: events.append((event, data))))
    return events


def launch(image: str, root: Path) -> LaunchSpec:
    lease_id = uuid4()
    folder = root / str(lease_id)
    spec = LaunchSpec(lease_id=lease_id, folder=folder, argv=["/bin/sh", "-c", "exit 0"], env={}, image=image)
    if root.exists():
        spec.work.mkdir(parents=True)
    return spec


def _small_image() -> bytes:
    """This computer's /bin/sh with its libraries, and bytes that do not compress."""
    listed = subprocess.run(["ldd", "/bin/sh"], check=True, capture_output=True, text=True).stdout
    libraries = re.findall(r"(/\S+)", listed)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for path in ["/bin/sh", *libraries]:
            tar.add(path, arcname=path)
        payload = tarfile.TarInfo("payload")
        payload.size = PAYLOAD_BYTES
        tar.addfile(payload, io.BytesIO(os.urandom(PAYLOAD_BYTES)))
    return buffer.getvalue()


def _push(client: docker.DockerClient, name: str) -> str:
    """Push a tag; the digest that the registry gave it."""
    until = time.monotonic() + READY_SECONDS_MAX
    while True:
        lines = list(client.api.push(name, tag="1", stream=True, decode=True))
        for line in lines:
            if digest := (line.get("aux") or {}).get("Digest"):
                return str(digest)
        assert time.monotonic() < until, lines
        time.sleep(0.2)  # the registry is not up yet


@contextmanager
def _running(world: World, *command: str, ready: str = "") -> Iterator[None]:
    """A server in the engine's network, ended afterwards."""
    with subprocess.Popen(
        [*world.inside(world.node), *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            if ready:
                assert server.stdout is not None
                assert server.stdout.readline().strip() == ready
            yield
        finally:
            server.kill()
