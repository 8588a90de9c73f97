"""Bytes of a release from the marketplace, within limits; nothing is believed here."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from provider_agent.errors import Refused, Retryable, Unreachable, UpdateRefused, decide
from provider_agent.protocol import MANIFEST_BYTES_MAX, ReleaseManifest

TIMEOUT: Final = httpx.Timeout(30.0, connect=15.0)
PROBE_TIMEOUT: Final = httpx.Timeout(5.0)
SIGNATURE_BYTES: Final = 64
SECONDS_MAX: Final = 1800.0  # for one file, however slowly it drips


def fetch_manifest(server: str, version: str) -> tuple[bytes, bytes]:
    """The manifest's bytes and its signature's. Raises Retryable, or UpdateRefused where there is no such release."""
    place = f"{server}/dist/releases/{version}"
    return _get(f"{place}/manifest.json", MANIFEST_BYTES_MAX), _get(f"{place}/manifest.sig", SIGNATURE_BYTES)


def fetch_wheel(server: str, manifest: ReleaseManifest, path: Path) -> None:
    """The wheel at `path`, whole, with the signed SHA-256. Raises Retryable, UpdateRefused or OSError (full disk)."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as out:
        for chunk in _stream(f"{server}/dist/{manifest.wheel}", manifest.size):
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    if size < manifest.size:
        raise Unreachable(f"{manifest.wheel} broke off after {size} of {manifest.size} bytes.")
    if digest.hexdigest() != manifest.sha256:
        raise UpdateRefused(f"{manifest.wheel} is not the file that was signed (SHA-256 {digest.hexdigest()}).")


def answers(*servers: str) -> bool:
    """Whether each server itself reports that it is well: an answer of a proxy, firewall or portal does not count."""
    with httpx.Client(timeout=PROBE_TIMEOUT) as http:
        for server in servers:
            try:
                answer = http.get(f"{server}/healthz")
                if answer.status_code != 200 or answer.json()["status"] != "ok":
                    return False
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError, KeyError):
                return False
    return True


def _get(url: str, bytes_max: int) -> bytes:
    return b"".join(_stream(url, bytes_max))


def _stream(url: str, bytes_max: int) -> Iterator[bytes]:
    left, until = bytes_max, time.monotonic() + SECONDS_MAX
    try:
        with httpx.Client(timeout=TIMEOUT) as http, http.stream("GET", url) as answer:
            if answer.status_code != 200:
                answer.read()
                raise decide(answer)
            for chunk in answer.iter_bytes():
                left -= len(chunk)
                if left < 0:
                    raise UpdateRefused(f"{url} is longer than {bytes_max} bytes.")
                if time.monotonic() > until:
                    raise Unreachable(f"{url} did not come within {SECONDS_MAX:.0f} s.")
                yield chunk
    except Refused as error:
        raise UpdateRefused(f"{url}: {error}") from error
    except Retryable:
        raise
    except httpx.HTTPError as error:
        raise Unreachable(f"No answer from {url}: {type(error).__name__} {error}".strip()) from error
