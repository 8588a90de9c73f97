"""What the OpenAPI description has beyond the wire types: pages, query parameters, errors, headers."""

from __future__ import annotations

from typing import Any

from drf_spectacular.drainage import set_override
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import model_json_schema

from jobs.running.streams import WAIT_SECONDS_MAX
from jobs.wire import ArtifactView, EndpointView, ErrorView, JobView, VolumeView, Wire
from marketplace.foundation.idempotency import HEADER
from provider_agent.protocol.bounds import COUNT_MAX, NODE_RANK_MAX, SMALL_COUNT_MAX

WAIT_SECONDS_ASKED_MAX = 86_400  # the server answers within WAIT_SECONDS_MAX, whatever is asked


class WireSchema(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Pydantic's own JSON schema of a wire type: of a request as it may be sent, of an answer as it comes.

    drf-spectacular's own extension describes both as answers, in which every field with a default is required.
    """

    target_class = "pydantic.BaseModel"
    match_subclasses = True
    priority = 1  # before drf-spectacular's

    def get_name(self, auto_schema: Any, direction: str) -> str:
        # Parts of another type are registered by their name, so meeting one here again is no collision.
        set_override(self.target, "suppress_collision_warning", True)
        return str(self.target.__name__)

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        schema = model_json_schema(
            self.target,
            ref_template="#/components/schemas/{model}",
            mode="validation" if direction == "request" else "serialization",
        )
        for name, part in schema.pop("$defs", {}).items():
            component = ResolvedComponent(  # type: ignore[no-untyped-call]
                name=name, type=ResolvedComponent.SCHEMA, object=name, schema=part
            )
            auto_schema.registry.register_on_missing(component)
        return schema


class StreamQuery(BaseModel):
    """GET /api/v1/jobs/{id}/logs | events: which stream, from where, and how long to wait for something new."""

    model_config = ConfigDict(extra="forbid")
    attempt: int | None = Field(default=None, ge=1, le=SMALL_COUNT_MAX)
    node_rank: int = Field(default=0, ge=0, le=NODE_RANK_MAX)
    offset: int = Field(default=0, ge=0, le=COUNT_MAX)
    wait_seconds: float = Field(default=0, ge=0, le=WAIT_SECONDS_ASKED_MAX)


class JobPage(Wire):
    """One page of jobs, newest first, without attempts and spec."""

    next: str | None
    previous: str | None
    results: list[JobView]


class EndpointPage(Wire):
    """One page of endpoints, newest first."""

    next: str | None
    previous: str | None
    results: list[EndpointView]


class ArtifactPage(Wire):
    """One page of artifacts, newest first, without addresses."""

    next: str | None
    previous: str | None
    results: list[ArtifactView]


class VolumePage(Wire):
    """One page of volumes, newest first, each with its newest version."""

    next: str | None
    previous: str | None
    results: list[VolumeView]


IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER, OpenApiTypes.STR, OpenApiParameter.HEADER, description="A repeat with the same key has no second effect."
)
PAGE = [
    OpenApiParameter("cursor", OpenApiTypes.STR, description="From `next` or `previous` of another page."),
    OpenApiParameter("page_size", OpenApiTypes.INT, description="At most 200."),
]
STREAM = [
    OpenApiParameter("attempt", OpenApiTypes.INT, description="From 1; the newest where it is left out."),
    OpenApiParameter("node_rank", OpenApiTypes.INT, description="Which node of the attempt; 0 where it is left out."),
    OpenApiParameter("offset", OpenApiTypes.INT, description="`next_offset` of the page before."),
    OpenApiParameter(
        "wait_seconds",
        OpenApiTypes.NUMBER,
        description=f"Wait for something new, at most {WAIT_SECONDS_MAX:.0f} s.",
    ),
]


def errors(*statuses: int) -> dict[int, OpenApiResponse]:
    """The statuses with which this call may refuse, beside 401 and 403."""
    return {status: OpenApiResponse(ErrorView, description=_MEANINGS[status]) for status in statuses}


_MEANINGS = {
    400: "The request is wrong.",
    402: "Not enough money; details say how much is missing.",
    404: "No such thing, or not yours.",
    409: "Not possible in the present state; `code` says why.",
    413: "The body is too large.",
    422: "The job file has mistakes; details list every one.",
    503: "Another request still works on it; `Retry-After` says when to ask again.",
}
