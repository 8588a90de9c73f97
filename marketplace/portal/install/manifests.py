"""The published parts of the agent: the wheel, and a manifest signed by the marketplace's key.

The signature covers `souk-release-v1`, a newline, and the manifest's bytes; the manifest names the wheel by its
SHA-256. It also lists what a node must have: versions below these minimums have known vulnerabilities.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from marketplace.foundation import signing
from marketplace.nodes.errors import NoSuchRelease
from marketplace.nodes.models import AgentRelease
from marketplace.nodes.releases.catalogue import installable
from marketplace.nodes.states import ReleaseState
from marketplace.portal.errors import NoAgentWheel
from provider_agent.protocol import RELEASE_KIND, RELEASE_PREFIX


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
    """What new nodes install: the newest complete release. Raises NoAgentWheel before there is one."""
    found = installable() if not settings.SOUK_AGENT_WHEEL else None
    path = wheel_folder() / found.wheel if found is not None else None
    return _describe_file(path if path is not None and path.exists() else _newest())


def release_of(version: str) -> Release:
    """A published release by its version, with what an operator allowed to go back to it; raises NoSuchRelease."""
    row = AgentRelease.objects.exclude(state=ReleaseState.WITHDRAWN).filter(version=version).first()
    if row is None:
        raise NoSuchRelease(version=version)
    return _describe_file(_path_of(row.wheel), rollback_from=row.rollback_from)


def require_wheel(version: str) -> None:
    """Raises NoAgentWheel if a published version's file is missing; versions that were never published are skipped."""
    row = AgentRelease.objects.filter(version=version).first()
    if row is not None and not _path_of(row.wheel).is_file():
        raise NoAgentWheel(reason=f"{_path_of(row.wheel)} is gone")


def wheel_named(name: str) -> Path | None:
    """A published wheel's file; None for every other name."""
    known = AgentRelease.objects.filter(wheel=name).exists() or name == current_release().name
    path = _path_of(name) if known else None
    return path if path is not None and path.is_file() else None


def newest_release() -> Release:
    """The wheel that was made or named last, whether or not it is sent to nodes."""
    return _describe_file(_newest())


def _path_of(name: str) -> Path:
    named = Path(settings.SOUK_AGENT_WHEEL) if settings.SOUK_AGENT_WHEEL else None
    return named if named is not None and named.name == name else wheel_folder() / name


def _describe_file(path: Path, *, rollback_from: str = "") -> Release:
    try:
        seen = path.stat()
    except OSError as error:
        raise NoAgentWheel(reason=f"{path.name} cannot be read") from error
    about = (settings.SOUK_SIGNING_KEY, settings.SOUK_API_URL, settings.SOUK_SYNC_URL)
    return _describe(path, seen.st_mtime_ns, seen.st_size, about, rollback_from)


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


@lru_cache(maxsize=8)
def _describe(path: Path, _mtime_ns: int, size: int, _about: tuple[str, ...], rollback_from: str) -> Release:
    """The parameters with an underscore are only part of the cache's key: they change when the answer does."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    version = path.name.split("-")[1]
    manifest = json.dumps(
        {
            "kind": RELEASE_KIND,
            "format": 1,
            "wheel": path.name,
            "version": version,
            "sha256": digest,
            "size": size,
            "server": settings.SOUK_API_URL,
            "sync_server": settings.SOUK_SYNC_URL,
            "floors": settings.SOUK_NODE_FLOORS,
            **({"rollback_from": rollback_from} if rollback_from else {}),
        },
        sort_keys=True,
    ).encode()
    signature = base64.b64decode(signing.sign(RELEASE_PREFIX + manifest))
    return Release(path, path.name, version, digest, manifest, signature)
