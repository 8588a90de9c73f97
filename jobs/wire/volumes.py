"""Volumes: named folders in the store, each put once and used by any number of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from jobs.wire.base import Wire

VOLUME_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"  # as a job's
SOURCE_CHARACTERS_MAX = 200  # VolumeVersion.source
VOLUMES_MAX = 500  # of one organisation
VERSIONS_MAX = 50  # of one volume

VolumeName = Annotated[str, StringConstraints(pattern=VOLUME_NAME)]


class VolumeRequest(BaseModel):
    """POST /api/v1/volumes: a complete upload (`artifact_id`), or what a job left (`job`), becomes a version."""

    model_config = ConfigDict(extra="forbid")
    name: VolumeName
    artifact_id: UUID | None = None
    job: VolumeName | None = Field(
        default=None, description="Its id, or its name: of the one that completed last. Its result becomes the version."
    )
    source: str = Field(
        default="", max_length=SOURCE_CHARACTERS_MAX, description="Where the files come from, in your own words."
    )

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if (self.artifact_id is None) == (self.job is None):
            raise ValueError("exactly one of artifact_id and job says what the volume holds")
        if not self.source.isprintable():
            raise ValueError("source holds characters that cannot be shown")
        return self


class VolumeVersionView(Wire):
    """One version; `GET /artifacts/{artifact_id}` has its files with their addresses."""

    number: int
    artifact_id: UUID
    job_id: UUID | None = Field(description="Whose result it is; null where it was uploaded.")
    state: str = Field(description="complete, or deleted: its files went, as nobody paid for keeping them.")
    size_bytes: int
    file_count: int
    source: str
    living_jobs: int = Field(description="Jobs that were given it and have not ended.")
    created_at: datetime
    superseded_at: datetime | None = Field(description="When a newer version came; null: this is the newest.")
    kept_until: datetime | None = Field(description="When its files go, where nobody pays for them; null: they stay.")


class VolumeView(Wire):
    """A volume; `versions` holds the newest alone in lists, and all of them, newest first, where it is named."""

    name: str
    created_at: datetime
    versions: list[VolumeVersionView]
