"""Images: found by name or digest, pulled within a deadline and a size, and named by the digest that runs."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound
from docker.models.images import Image

from provider_agent.errors import ExecutorFailed, ImageUnavailable
from provider_agent.executors.base import ReportEvent
from provider_agent.executors.docker.manifests import keeps_in_containerd, require_no_addresses
from provider_agent.executors.docker.registries import RegistryAnswer, require_name, require_registry
from provider_agent.protocol import LOCAL_IMAGES, PUBLIC_REGISTRIES, registry_of, untagged

PULL_SECONDS_MAX = 3600.0
PULL_SILENT_SECONDS_MAX = 120.0  # a registry that sends nothing for so long is given up
CONNECT_SECONDS_MAX = 10.0
REGISTRY_SECONDS_MAX = 10.0  # for its answer about one image; a pull has longer
TELL_SECONDS = 5.0
WHY_CHARACTERS_MAX = 300
IMAGE_BYTES_MAX = 64 * 1024**3  # as it travels, compressed
LAYERS_MAX = 1000
MIB = 1024**2

log = logging.getLogger(__name__)


def ensure_image(
    engine: docker.DockerClient,
    name: str,
    *,
    report_event: ReportEvent,
    cancelled: threading.Event,
    registries: tuple[str, ...] | None = None,
) -> Image:
    """The image that `name` means, pulled if it is not here; `report_event` is called with bytes and with the digest.

    `registries`: a customer named the image. Then it comes from one of these, which gives it to anyone, or is not run;
    and an error repeats nothing of what answered. Raises ImageUnavailable for one that cannot be pulled in time or is
    too large, ExecutorFailed for a silent engine.
    """
    if registries is not None:
        require_name(name)
    image = find_image(engine, name)
    pinned = name
    try:
        if registries is not None and not (image is not None and LOCAL_IMAGES in registries):
            require_registry(name, registries)
            if image is not None and published_digest(engine, name) not in _digests(image):
                image = None  # of another's making, or older than what the registry gives
            if image is None and registry_of(name) in PUBLIC_REGISTRIES:
                pinned = _checked(engine, name, cancelled)
        return _fetch(engine, name, image, pinned=pinned, report_event=report_event, cancelled=cancelled)
    except RegistryAnswer as error:
        if registries is None:
            raise
        log.warning("A customer's image was not fetched. image=%s error=%s", name, error)
        raise ImageUnavailable(
            f"The image {name} could not be fetched. Check its name, and that anyone may pull it without signing in."
        ) from None


def _fetch(
    engine: docker.DockerClient,
    name: str,
    image: Image | None,
    *,
    pinned: str,
    report_event: ReportEvent,
    cancelled: threading.Event,
) -> Image:
    if image is None:
        _pull(engine, pinned, report_event=report_event, cancelled=cancelled)
        image = find_image(engine, pinned)
        if image is not None and pinned != name and "@" not in name:
            image.tag(untagged(name), name.removeprefix(untagged(name)).removeprefix(":") or "latest")
    if image is None:
        raise ImageUnavailable(f"The image {name} was pulled and is not there.")
    digest = digest_of(image, name)
    log.info("Image resolved. image=%s digest=%s", name, digest)
    report_event("image", image=name, digest=digest)
    return image


def find_image(engine: docker.DockerClient, name: str) -> Image | None:
    """The image if the engine has it."""
    try:
        return engine.images.get(name)
    except ImageNotFound:
        return None
    except (APIError, requests.RequestException) as error:
        raise ExecutorFailed(f"The engine did not list its images: {error}") from error


def digest_of(image: Image, name: str) -> str:
    """The registry's digest under the name's repository, else the image's own id, which is a digest as well."""
    repository = untagged(name)
    for known in image.attrs.get("RepoDigests") or []:
        if known.startswith(f"{repository}@"):
            return str(known.partition("@")[2])
    return str(image.id)


def why_no_image(engine: docker.DockerClient, name: str) -> str:
    """Why the image is not available; empty if it is on the node, or its registry has it. Nothing is pulled."""
    api = engine.api
    try:
        if find_image(engine, name) is not None:
            return ""
        asked = f"{api.base_url}/v{api.api_version}/distribution/{quote(name, safe='/:@')}/json"
        with api.get(asked, timeout=(CONNECT_SECONDS_MAX, REGISTRY_SECONDS_MAX)) as answer:
            if answer.status_code == requests.codes.ok:
                return ""
            return f"the image {name} is not here and cannot be pulled: {_message(answer)[:WHY_CHARACTERS_MAX]}"
    except (DockerException, requests.RequestException) as error:
        return f"the engine does not answer whether it has the image {name}: {error}"[:WHY_CHARACTERS_MAX]


def why_no_label(engine: docker.DockerClient, name: str, label: str) -> str:
    """Why an image is not known to have what this label stands for; empty if it is on the node with it, not empty."""
    try:
        found = find_image(engine, name)
    except (DockerException, requests.RequestException) as error:
        return f"the engine does not answer whether it has the image {name}: {error}"[:WHY_CHARACTERS_MAX]
    if found is None:
        return f"the image {name} is not here yet, so what it has is not known"
    return "" if found.labels.get(label) else f"the image {name} has no label {label}: it was built without"


def published_digest(engine: docker.DockerClient, name: str) -> str:
    """The digest under which the image's registry gives it to anyone; raises RegistryAnswer where it does not."""
    api = engine.api
    asked = f"{api.base_url}/v{api.api_version}/distribution/{quote(name, safe='/:@')}/json"
    try:
        with api.get(asked, timeout=(CONNECT_SECONDS_MAX, REGISTRY_SECONDS_MAX)) as answer:
            if answer.status_code != requests.codes.ok:
                raise RegistryAnswer(_message(answer))
            return str(answer.json()["Descriptor"]["digest"])
    except (DockerException, requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise RegistryAnswer(f"The registry of the image {name} gave no digest: {error}") from error


def _checked(engine: docker.DockerClient, name: str, cancelled: threading.Event) -> str:
    """What to pull: the name, or its digest once its manifests were read, where the engine asks what they name."""
    try:
        info = engine.info()
    except (DockerException, requests.RequestException) as error:
        raise ExecutorFailed(f"The engine did not describe itself: {error}") from error
    if not keeps_in_containerd(info):
        return name
    digest = published_digest(engine, name)
    require_no_addresses(name, digest, architecture=str(info.get("Architecture", "")), cancelled=cancelled)
    return f"{untagged(name)}@{digest}"


def _digests(image: Image) -> set[str]:
    return {str(known).partition("@")[2] for known in image.attrs.get("RepoDigests") or []}


def _pull(engine: docker.DockerClient, name: str, *, report_event: ReportEvent, cancelled: threading.Event) -> None:
    """Ask the engine for the image and follow it. Without credentials: the provider's are not the customer's."""
    api = engine.api
    reference = name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"
    until = time.monotonic() + PULL_SECONDS_MAX
    progress = Progress()
    tell_at = 0.0
    try:
        with api.post(
            f"{api.base_url}/v{api.api_version}/images/create",
            params={"fromImage": reference},
            stream=True,
            timeout=(CONNECT_SECONDS_MAX, PULL_SILENT_SECONDS_MAX),
        ) as answer:
            for line in _lines(answer, name):
                progress.add(line, name)
                now = time.monotonic()
                if cancelled.is_set():
                    return
                if now > until:
                    raise ImageUnavailable(f"The image {name} was not here after {PULL_SECONDS_MAX:.0f} s.")
                if now >= tell_at and progress.bytes_total:
                    _report_progress(name, progress, report_event)
                    tell_at = now + TELL_SECONDS
    except (APIError, requests.RequestException) as error:
        raise RegistryAnswer(f"The image {name} cannot be fetched: {error}") from error
    if progress.bytes_total:
        _report_progress(name, progress, report_event)


def _lines(answer: requests.Response, name: str) -> Iterator[dict[str, Any]]:
    if answer.status_code != requests.codes.ok:
        raise RegistryAnswer(f"The image {name} cannot be fetched: {_message(answer)}")
    for line in answer.iter_lines():
        if line:
            yield json.loads(line)


def _message(answer: requests.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError):
        return f"the engine answered {answer.status_code}"


class Progress:
    """Bytes of all layers together, from the engine's lines about each."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}  # layer -> bytes here, bytes in all

    @property
    def bytes_here(self) -> int:
        return sum(here for here, _ in self._layers.values())

    @property
    def bytes_total(self) -> int:
        return sum(total for _, total in self._layers.values())

    def add(self, line: dict[str, Any], name: str) -> None:
        """Take one line in; raises ImageUnavailable for an error in it, and for an image that is too large."""
        if "error" in line:
            raise RegistryAnswer(f"The image {name} cannot be fetched: {line['error']}")
        layer, detail = str(line.get("id", "")), line.get("progressDetail") or {}
        if line.get("status") == "Downloading" and len(self._layers) < LAYERS_MAX:
            self._layers[layer] = int(detail.get("current", 0)), int(detail.get("total", 0))
        elif line.get("status") in {"Download complete", "Pull complete"} and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = total, total
        if self.bytes_total > IMAGE_BYTES_MAX:
            size = self.bytes_total // MIB
            raise ImageUnavailable(f"The image {name} has {size} MiB; this node takes {IMAGE_BYTES_MAX // MIB}.")


def _report_progress(name: str, progress: Progress, report_event: ReportEvent) -> None:
    here, total = progress.bytes_here, progress.bytes_total
    log.info("Image is being pulled. image=%s bytes=%d bytes_total=%d", name, here, total)
    report_event("pulling", image=name, bytes=here, bytes_total=total)
