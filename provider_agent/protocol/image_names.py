"""From which registries a customer's image may come, by its name alone: both sides decide it alike.

A name reaches the provider's own network: its engine asks whatever host the name begins with, on any port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

DOCKER_HUB: Final = "docker.io"
LOCAL_IMAGES: Final = "local"  # in a list of registries: images that no registry of the list gave, as built on the node
PUBLIC_REGISTRIES: Final = (
    DOCKER_HUB,
    "ghcr.io",
    "mcr.microsoft.com",
    "nvcr.io",
    "public.ecr.aws",
    "quay.io",
    "registry.gitlab.com",
)
REGISTRIES_MAX: Final = 100
REGISTRY_PATTERN: Final = r"^[a-z0-9\[][a-z0-9.:\[\]-]{0,254}$"
# Each part begins with a letter or a digit, as engines have it: a name is a part of the engine's addresses, in which
# `alice/../../images/private` would be another image, asked for past all that is checked of the registry.
# Job files have the same pattern (jobs/spec/model.py).
_IMAGE: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]*(/[a-zA-Z0-9][a-zA-Z0-9._:-]*)*(@sha256:[0-9a-f]{64})?")
_HUB_NAMES: Final = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})


def is_image_name(name: str) -> bool:
    """Whether it names an image, and nothing else of the engine that is asked for it."""
    return _IMAGE.fullmatch(name) is not None


def registry_of(name: str) -> str:
    """The host (and port) that an engine asks for the image, as the engine reads names: in lower case."""
    head, slash, _ = name.partition("/")
    is_host = bool(slash) and ("." in head or ":" in head or head.lower() == "localhost" or head != head.lower())
    registry = head.lower() if is_host else DOCKER_HUB
    return DOCKER_HUB if registry in _HUB_NAMES else registry


def untagged(name: str) -> str:
    """A name without its tag and digest."""
    name = name.partition("@")[0]
    head, colon, tail = name.rpartition(":")
    return head if colon and "/" not in tail else name


def is_allowed_registry(name: str, registries: Iterable[str]) -> bool:
    """Whether the image's registry is one of these; one with a port, or an address, only where it is listed so."""
    return registry_of(name) in registries


def host_of(registry: str) -> str:
    """A registry without its port."""
    if registry.startswith("["):
        return registry[1:].partition("]")[0]
    return registry.partition(":")[0]
