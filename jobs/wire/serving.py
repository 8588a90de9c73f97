"""What is served: endpoints, their versions and replicas."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from jobs.wire.base import Wire


class ReplicaView(Wire):
    """One attempt behind an endpoint, as the gateways see it."""

    replica_id: UUID
    lease_id: UUID
    attempt: int
    version: int
    state: str  # starting, ready, draining, gone
    reason: str
    node_id: UUID
    node_name: str
    region: str
    device_model: str
    rate_usd_micros_per_hour: int
    engine: str
    in_flight: int
    tokens_per_second: float | None
    created_at: datetime
    ready_at: datetime | None


class VersionView(Wire):
    """One deployed version, and its share of the requests in percent."""

    number: int
    state: str  # starting, live, retired, rolled_back
    share: int
    reason: str
    created_at: datetime


class EndpointView(Wire):
    """GET /api/v1/endpoints: a served model's address. `state`: starting, ready, asleep, paused, or closed."""

    endpoint_id: UUID
    job_id: UUID
    model: str
    public_model: str | None  # how other organisations name it; None: it is not public
    base_url: str  # for an OpenAI client; empty: no gateway is up
    state: str
    why: str  # what it waits for, or why it has as many replicas as it has
    replicas_desired: int
    replicas_ready: int
    rate_usd_micros_per_hour: int  # of all its live replicas
    input_usd_micros_per_million: int | None
    output_usd_micros_per_million: int | None
    in_flight: int
    queued: int
    created_at: datetime
    versions: list[VersionView] = Field(default_factory=list)
    replicas: list[ReplicaView] = Field(default_factory=list)


class DeployRequest(BaseModel):
    """POST /api/v1/endpoints/{id}/versions: a new version of what is served, under the terms that were quoted."""

    model_config = ConfigDict(extra="forbid")
    spec: dict[str, Any]
    input_artifact_id: UUID | None = None
