"""Checkpoints, outputs and prepared data of a lease: announced, put in parts, completed, fetched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from provider_agent.protocol.bounds import NODE_RANK_MAX, Bytes, Count, Whole
from provider_agent.protocol.file_names import PATH_CHARACTERS_MAX, file_name_mistake
from provider_agent.protocol.limits import FILES_PER_ARTIFACT_MAX
from provider_agent.protocol.message import Message
from runtimes.contract import CACHE_KEY, MANIFEST_NAME, PARTIAL_SUFFIX, PREPARED_KINDS

ETAG_CHARACTERS_MAX: Final = 200
PARTS_PER_FILE_MAX: Final = 10_000  # what S3 takes of one upload
PREPARED_ENTRIES_MAX: Final = 4  # tokens and a tokenizer, and as much of an attempt with other libraries
PREPARED_FILES_MAX: Final = 16  # of one entry
PREPARED_MANIFEST_BYTES_MAX: Final = 1024 * 1024  # of an entry; a chat template is in it
PREPARED_BYTES_MAX: Final = 60 * 10**9  # of 15 billion tokens; a node fetches as much in ten minutes, at 100 MB/s

ShippedKind = Literal["checkpoint", "output", "prepared"]  # what nodes bring; the marketplace has inputs, too
Etag = Annotated[str, Field(max_length=ETAG_CHARACTERS_MAX)]
Etags = Annotated[
    dict[
        Annotated[str, Field(max_length=PATH_CHARACTERS_MAX)],
        Annotated[list[Etag], Field(max_length=PARTS_PER_FILE_MAX)],
    ],
    Field(max_length=FILES_PER_ARTIFACT_MAX),
]


class ArtifactFile(Message):
    """One file of an artifact."""

    path: str = Field(min_length=1, max_length=PATH_CHARACTERS_MAX)
    size: Bytes
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ArtifactBegin(Message):
    """POST /api/agent/v1/leases/{lease_id}/artifacts: announce the files, get where to put their bytes."""

    kind: ShippedKind
    step: Count | None = None
    billable_ms: Count = 0  # the lease's meter when the checkpoint was complete on disk
    node_rank: Whole = Field(default=0, ge=0, le=NODE_RANK_MAX)
    generation: Count = 0  # of the gang whose ranks wrote it
    files: list[ArtifactFile] = Field(max_length=FILES_PER_ARTIFACT_MAX)

    @model_serializer(mode="wrap")
    def _as_older_servers_read_it(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        body: dict[str, Any] = dump(self)
        if body.get("generation") == 0:
            del body["generation"]
        return body


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

    etags: Etags


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


def prepared_mistake(paths: Iterable[str]) -> str | None:
    """What is wrong with the names of prepared data, KIND/KEY/NAME each, or None; asked by both sides."""
    entries: dict[str, set[str]] = {}
    for path in paths:
        kind, key, name = (*path.split("/"), "", "")[:3]
        is_named = kind in PREPARED_KINDS and CACHE_KEY.fullmatch(key) is not None and path == f"{kind}/{key}/{name}"
        if not is_named or file_name_mistake(path) or name.endswith(PARTIAL_SUFFIX):
            return f"{path!r:.100} is no file of prepared data"
        entries.setdefault(f"{kind}/{key}", set()).add(name)
    if not 1 <= len(entries) <= PREPARED_ENTRIES_MAX:
        return f"there are {len(entries)} entries, and may be 1 to {PREPARED_ENTRIES_MAX}"
    if large := [entry for entry, names in entries.items() if len(names) > PREPARED_FILES_MAX]:
        return f"{large[0]} has more than {PREPARED_FILES_MAX} files"
    if torn := [entry for entry, names in entries.items() if MANIFEST_NAME not in names]:
        return f"{torn[0]} has no {MANIFEST_NAME}"
    return None
