"""What of the agent is published: the wheel, and a manifest signed by the marketplace's key.

The signature covers `souk-release-v1`, a newline, and the manifest's bytes; the manifest names the wheel by its
SHA-256. Besides it says what a node must have: versions below these floors have known holes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from django.conf import settings

from marketplace.foundation import signing
from marketplace.portal.errors import NoAgentWheel

KIND: Final = "souk-agent-release"
SIGNED_PREFIX: Final = b"souk-release-v1\n"


@dataclass(frozen=True)
class Release:
    """One published wheel."""

    path: Path
    name: str
    version: str
    sha256: str
    manifest: bytes
    signature: bytes


def current_release() -> Release:
    """The newest wheel that was published here; raises NoAgentWheel before there is one."""
    path = _newest()
    try:
        seen = path.stat()
    except OSError as error:
        raise NoAgentWheel(reason=f"{path.name} cannot be read") from error
    return _describe(path, seen.st_mtime_ns, seen.st_size, settings.SOUK_SIGNING_KEY)


def wheel_folder() -> Path:
    """Where `publish_agent` puts the wheel that it makes."""
    return Path(settings.SOUK_DATA) / "dist"


def _newest() -> Path:
    if settings.SOUK_AGENT_WHEEL:
        return Path(settings.SOUK_AGENT_WHEEL)
    found = sorted(wheel_folder().glob("gpusouk-*.whl"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        raise NoAgentWheel(reason=f"{wheel_folder()} holds no wheel")
    return found[-1]


@lru_cache(maxsize=4)
def _describe(path: Path, _mtime_ns: int, size: int, _key: str) -> Release:
    """The parameters with an underscore only say when what was remembered is stale."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    version = path.name.split("-")[1]
    manifest = json.dumps(
        {
            "kind": KIND,
            "format": 1,
            "wheel": path.name,
            "version": version,
            "sha256": digest,
            "size": size,
            "server": settings.SOUK_API_URL,
            "sync_server": settings.SOUK_SYNC_URL,
            "floors": settings.SOUK_NODE_FLOORS,
        },
        sort_keys=True,
    ).encode()
    signature = base64.b64decode(signing.sign(SIGNED_PREFIX + manifest))
    return Release(path, path.name, version, digest, manifest, signature)
