"""Whether a customer's image may be asked for: by its registry's name, and by the addresses behind the name.

The engine resolves the name again when it pulls, so an answer that changes in between gets past the second check; the
first is what keeps a customer from choosing the host: a name that is not in the provider's list is never asked for.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

from provider_agent.errors import ImageUnavailable
from provider_agent.protocol import (
    PUBLIC_REGISTRIES,
    host_of,
    is_allowed_registry,
    is_image_name,
    registry_of,
)
from runtimes.contract import is_public_address

HTTPS_PORT = 443
HUB_HOST = "registry-1.docker.io"  # that answers for docker.io

log = logging.getLogger(__name__)

Resolve = Callable[..., list[Any]]


class RegistryAnswer(ImageUnavailable):
    """An image that is not available, in the words of whatever answered: for the provider's log alone."""


def require_name(name: str) -> None:
    """Raise ImageUnavailable for what would lead elsewhere in the engine's addresses, before the engine is asked."""
    if not is_image_name(name):
        raise ImageUnavailable(f"{name!r} is no image's name.")


def require_registry(name: str, registries: tuple[str, ...], *, resolve: Resolve = socket.getaddrinfo) -> None:
    """Raise ImageUnavailable unless the image's registry is listed and, if a public one, has public addresses only.

    One that the provider listed beyond the public ones is the provider's own choice, in the provider's network or not.
    """
    registry = registry_of(name)
    if not is_allowed_registry(name, registries):
        raise ImageUnavailable(
            f"This node fetches no images of the registry {registry}, only of {_listed(registries)}."
        )
    if registry not in PUBLIC_REGISTRIES:
        return
    host = HUB_HOST if registry == "docker.io" else host_of(registry)
    try:
        found = resolve(host, HTTPS_PORT, type=socket.SOCK_STREAM)
    except OSError as error:  # an engine behind a proxy resolves it elsewhere, or fails by itself
        log.info("A registry was not resolved. host=%s error=%s", host, error)
        return
    inside = [str(address[0]) for *_, address in found if not is_public_address(str(address[0]))]
    if inside:
        log.warning("A registry has an address that is not public. host=%s address=%s", host, inside[0])
        raise ImageUnavailable(f"The registry {registry} has no public address as seen from this node.")


def _listed(registries: tuple[str, ...]) -> str:
    return ", ".join(registries) or "none"
