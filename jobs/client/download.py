"""Fetches an artifact's files: every byte checked, interrupted files gone on with, nothing overwritten unasked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.parse import urljoin
from uuid import UUID

import httpx

from jobs.client.errors import TransferFailed
from jobs.client.sdk import Souk
from jobs.client.transport import backoff_seconds
from provider_agent.protocol import RemoteFile
from runtimes.contract import sha256_file

ATTEMPTS_MAX = 6
READ_SECONDS = 120.0
PARTIAL_SUFFIX = ".souk-partial"
_FORBIDDEN = frozenset("\\:\0\N{REPLACEMENT CHARACTER}")  # the last stands for control characters


def download_artifact(
    souk: Souk, artifact_id: UUID, into: Path, *, force: bool = False, on_bytes: Callable[[int], None] = lambda _: None
) -> list[Path]:
    """The artifact's files below `into`, each with the SHA-256 that the server recorded; raises TransferFailed."""
    artifact = souk.artifact(artifact_id)
    targets = {file.path: safe_target(into, file.path) for file in artifact.files}
    for file in artifact.files:
        target = targets[file.path]
        if target.exists() and not force and not _is_there(target, file):
            raise TransferFailed(f"{target} exists already and differs; --force overwrites it.")
    for file in artifact.files:
        target = targets[file.path]
        if _is_there(target, file):
            on_bytes(file.size)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(souk, artifact_id, file, target, on_bytes)
    return list(targets.values())


def safe_target(into: Path, path: str) -> Path:
    """Where a file goes, always below `into`; raises TransferFailed for a path that would lead elsewhere."""
    relative = PurePosixPath(path)
    target = into / relative
    bad = relative.is_absolute() or not relative.parts or ".." in relative.parts or _FORBIDDEN & set(path)
    if bad or not target.parent.resolve().is_relative_to(into.resolve()) or target.is_symlink():
        raise TransferFailed(f"The server names an unsafe path: {path!r}. Nothing was written for it.")
    return target


def _is_there(target: Path, file: RemoteFile) -> bool:
    return target.is_file() and target.stat().st_size == file.size and sha256_file(target) == file.sha256


def _fetch(souk: Souk, artifact_id: UUID, file: RemoteFile, target: Path, on_bytes: Callable[[int], None]) -> None:
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    url, problem = file.url, ""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            status = _append(souk, url, partial, file.size, on_bytes)
        except httpx.TransportError as error:
            problem = str(error) or type(error).__name__
        else:
            if status in (401, 403, 404, 410):  # the address may have expired: ask for a new one
                url = _address(souk, artifact_id, file, url)
            problem = f"the store answers {status}"
            if status in (200, 206) and partial.stat().st_size == file.size:
                if sha256_file(partial) == file.sha256:
                    partial.replace(target)
                    return
                partial.unlink()
                problem = "its SHA-256 is not the recorded one"
                url = _address(souk, artifact_id, file, url, is_damaged=True)
            elif status == 416:
                partial.unlink(missing_ok=True)
        if attempt < ATTEMPTS_MAX:
            time.sleep(backoff_seconds(attempt))
    raise TransferFailed(f"{file.path} could not be fetched: {problem}.")


def _address(souk: Souk, artifact_id: UUID, file: RemoteFile, url: str, *, is_damaged: bool = False) -> str:
    files = souk.artifact(artifact_id, is_damaged=is_damaged).files
    return next((each.url for each in files if each.path == file.path), url)


def _append(souk: Souk, url: str, partial: Path, size: int, on_bytes: Callable[[int], None]) -> int:
    """Fetch what is missing of `partial`, and no byte more than `size`; the store's status."""
    have = partial.stat().st_size if partial.exists() else 0
    if have > size:
        partial.unlink()
        have = 0
    if have == size:
        partial.touch()
        return 200
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    full = urljoin(souk.transport.server + "/", url)
    timeout = httpx.Timeout(READ_SECONDS, connect=10.0)
    with souk.transport.http.stream("GET", full, headers=headers, timeout=timeout) as response:
        if response.status_code not in (200, 206):
            return response.status_code
        resumes = response.status_code == 206 and have > 0
        if not resumes:
            have = 0
        with partial.open("ab" if resumes else "wb") as out:
            for chunk in response.iter_raw():
                out.write(chunk[: size - have])
                on_bytes(min(len(chunk), size - have))
                have = min(size, have + len(chunk))
        return response.status_code
