"""/api/v1/volumes"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, ConfigDict, Field
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, answer_page, read_body, read_query
from jobs.api.schemas import IDEMPOTENCY_KEY, PAGE, VolumePage, errors
from jobs.artifacts import volumes
from jobs.errors import ResultNotReady
from jobs.models import ArtifactPart, JobInput, Volume, VolumeVersion
from jobs.results import find_result, find_volume
from jobs.states import JOB_ENDS
from jobs.wire import VolumeRequest, VolumeVersionView, VolumeView
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.idempotency import idempotent
from provider_agent.protocol.bounds import SMALL_COUNT_MAX

MAY: Final = [HasScope("jobs:read", write="jobs:write")]
NO_RESULT: Final = "No job {job} of yours has a complete result here. `souk jobs` lists yours."


class VolumeQuery(BaseModel):
    """DELETE /api/v1/volumes/{name}: which version; the whole volume where it is left out."""

    model_config = ConfigDict(extra="forbid")
    version: int | None = Field(default=None, ge=1, le=SMALL_COUNT_MAX)


VERSION: Final = OpenApiParameter(
    "version", OpenApiTypes.INT, description="This version alone, which a newer one has superseded."
)


class VolumesView(APIView):
    """The organisation's volumes."""

    permission_classes = MAY

    @extend_schema(operation_id="volumes_list", parameters=PAGE, responses={200: VolumePage})
    def get(self, request: Request) -> Response:
        """Newest first, each with its newest version."""
        return answer_page(request, self, Volume.objects.filter(organisation=organisation_of(request)), _list)

    @extend_schema(
        operation_id="volume_put",
        parameters=[IDEMPOTENCY_KEY],
        request=VolumeRequest,
        responses={201: VolumeView, **errors(400, 404, 409, 422)},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Make a complete upload, or what a job left, the newest version of a volume; no bytes move.

        What is the newest version already stays it. Jobs that were submitted before keep the version they have.
        """
        asked, organisation = read_body(request, VolumeRequest), organisation_of(request)
        if asked.artifact_id is not None:
            volumes.put_upload(organisation, asked.name, asked.artifact_id, source=asked.source)
        else:
            result = find_result(organisation, str(asked.job))
            if result is None:
                raise ResultNotReady(NO_RESULT.format(job=asked.job), job=asked.job)
            volumes.put(organisation, asked.name, result, source=asked.source)
        return answer(_show(find_volume(organisation, asked.name)), status.HTTP_201_CREATED)


class VolumeDetailView(APIView):
    """One volume."""

    permission_classes = MAY

    @extend_schema(operation_id="volume_show", responses={200: VolumeView, **errors(404)})
    def get(self, request: Request, name: str) -> Response:
        """The volume with all its versions, newest first."""
        return answer(_show(find_volume(organisation_of(request), name)))

    @extend_schema(operation_id="volume_delete", parameters=[VERSION], responses={200: VolumeView, **errors(404, 409)})
    def delete(self, request: Request, name: str) -> Response:
        """Delete it, or one version that is superseded; the answer is what it was. Living jobs keep what they have."""
        version, organisation = read_query(request, VolumeQuery).version, organisation_of(request)
        shown = _show(find_volume(organisation, name))
        volumes.delete(organisation, name, version)
        return answer(shown)


def _list(found: Sequence[Volume]) -> list[VolumeView]:
    newest = _versions().filter(volume__in=found, superseded_at=None)
    return _views(found, newest)


def _show(volume: Volume) -> VolumeView:
    return _views([volume], _versions().filter(volume=volume))[0]


def _views(found: Sequence[Volume], versions: Iterable[Any]) -> list[VolumeView]:
    by_volume: defaultdict[Any, list[VolumeVersionView]] = defaultdict(list)
    for version in versions:
        by_volume[version.volume_id].append(_show_version(version))
    return [
        VolumeView(name=volume.name, created_at=volume.created_at, versions=by_volume[volume.pk]) for volume in found
    ]


def _versions() -> QuerySet[VolumeVersion]:
    """Newest first, with the number of files and of living jobs."""
    parts = ArtifactPart.objects.filter(artifact=OuterRef("artifact")).order_by().values("artifact")
    living = JobInput.objects.filter(artifact=OuterRef("artifact")).exclude(job__state__in=JOB_ENDS).order_by()
    return (
        VolumeVersion.objects.select_related("artifact")
        .annotate(
            files=Subquery(parts.annotate(sum=Sum("file_count")).values("sum")),
            living=Subquery(living.values("artifact").annotate(count=Count("pk")).values("count")),
        )
        .order_by("-number")
    )


def _show_version(version: Any) -> VolumeVersionView:
    artifact = version.artifact
    return VolumeVersionView(
        number=version.number,
        artifact_id=artifact.pk,
        job_id=artifact.job_id,
        state=artifact.state,
        size_bytes=artifact.size_bytes,
        file_count=version.files or 0,
        source=version.source,
        living_jobs=version.living or 0,
        created_at=version.created_at,
        superseded_at=version.superseded_at,
        kept_until=artifact.goes_at,
    )
