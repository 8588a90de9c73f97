"""The job's files on their way in, and what it leaves behind."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from jobs.wire.base import Wire
from provider_agent.protocol import FILES_PER_ARTIFACT_MAX, ArtifactFile, Etags, FileUpload, RemoteFile


class UploadRequest(BaseModel):
    """POST /api/v1/uploads: the job's files, before it is submitted."""

    model_config = ConfigDict(extra="forbid")
    files: list[ArtifactFile] = Field(min_length=1, max_length=FILES_PER_ARTIFACT_MAX)


class UploadView(Wire):
    """Where the files' bytes go; then POST /api/v1/uploads/{artifact_id}/complete with UploadComplete."""

    artifact_id: UUID
    uploads: list[FileUpload]


class UploadComplete(BaseModel):
    """path -> ETag of each part, in order."""

    model_config = ConfigDict(extra="forbid")
    etags: Etags


class ArtifactView(Wire):
    """An artifact; `files` with their addresses only where it is requested by id."""

    artifact_id: UUID
    job_id: UUID | None
    kind: str
    step: int | None
    state: str
    size_bytes: int
    file_count: int
    created_at: datetime
    completed_at: datetime | None
    condemned_at: datetime | None = Field(
        default=None, description="Of a checkpoint: attempts could not resume from it; none will again."
    )
    kept_until: datetime | None = Field(
        default=None, description="When its files go; null while a job needs them, and when they have gone."
    )
    files: list[RemoteFile] = Field(default_factory=list)


class StorageView(Wire):
    """GET /api/v1/storage: what the organisation keeps, what of it is free, and the newest day that was charged."""

    kept_bytes: int = Field(description="Inputs, checkpoints and outputs, counted from their announcement.")
    allowed_bytes: int
    free_bytes: int
    usd_micros_per_gib_month: int = Field(description="Of what is kept beyond free_bytes, for 30 days; 0: nothing.")
    output_kept_days: float
    charged_day: date | None
    due_usd_micros: int | None
    is_paid: bool | None
