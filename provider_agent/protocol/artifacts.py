"""Checkpoints and outputs of a lease: announced, put in parts, completed, fetched."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import Field

from provider_agent.protocol.limits import FILES_PER_ARTIFACT_MAX
from provider_agent.protocol.message import Message


class ArtifactFile(Message):
    """One file of an artifact."""

    path: str = Field(min_length=1, max_length=512)
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ArtifactBegin(Message):
    """POST /api/agent/v1/leases/{lease_id}/artifacts: announce the files, get where to put their bytes."""

    kind: Literal["checkpoint", "output"]
    step: int | None = Field(default=None, ge=0)
    billable_ms: int = Field(default=0, ge=0)  # the lease's meter when the checkpoint was complete on disk
    node_rank: int = Field(default=0, ge=0)
    files: list[ArtifactFile] = Field(max_length=FILES_PER_ARTIFACT_MAX)


class UploadPart(Message):
    """PUT `size` bytes from `offset` of the file to `url`; the answer's ETag goes into the completion."""

    number: int = Field(ge=1)
    offset: int = Field(ge=0)
    size: int = Field(ge=0)
    url: str


class FileUpload(Message):
    """Where one file's bytes go."""

    path: str
    parts: list[UploadPart]


class ArtifactUploads(Message):
    """Where the bytes go; a file that the server has already is left out."""

    artifact_id: UUID
    uploads: list[FileUpload]


class ArtifactComplete(Message):
    """POST .../artifacts/{artifact_id}/complete: path -> ETag of each part, in order."""

    etags: dict[str, list[str]]


class RemoteFile(Message):
    """A file that can be fetched from `url` until it expires."""

    path: str
    size: int
    sha256: str
    url: str


class ArtifactDownloads(Message):
    """GET .../artifacts/{artifact_id}"""

    artifact_id: UUID
    kind: str
    step: int | None
    files: list[RemoteFile]
