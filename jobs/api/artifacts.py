"""/api/v1/uploads, /api/v1/jobs/{id}/artifacts, /api/v1/artifacts/{id}, /api/v1/storage"""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, answer_page, find_job, read_body
from jobs.api.job_views import list_artifacts, show_artifact, show_storage
from jobs.api.schemas import IDEMPOTENCY_KEY, PAGE, ArtifactPage, errors
from jobs.artifacts import inputs, prune
from jobs.errors import ArtifactNotFound
from jobs.models import Artifact
from jobs.wire import ArtifactView, StorageView, UploadComplete, UploadRequest, UploadView
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.idempotency import idempotent

DAMAGED = OpenApiParameter(
    "damaged",
    bool,
    description="true where the addresses of before gave other bytes than announced: from the second copy, if any.",
)


class UploadsView(APIView):
    """A job's files, before it is submitted."""

    permission_classes = [HasScope("jobs:read", write="jobs:write")]

    @extend_schema(
        operation_id="upload_begin",
        parameters=[IDEMPOTENCY_KEY],
        request=UploadRequest,
        responses={201: UploadView, **errors(400)},
    )
    def post(self, request: Request) -> Response:
        """Announce the files; the answer says where the bytes go. A repeat gets the same artifact, newly addressed."""
        announced = self._announce(request)
        if announced.status_code != status.HTTP_201_CREATED:
            return announced
        artifact_id = UUID(announced.data["artifact_id"])
        uploads = inputs.begin_input(organisation_of(request), artifact_id)
        return answer(UploadView(artifact_id=artifact_id, uploads=uploads), status.HTTP_201_CREATED)

    @idempotent
    def _announce(self, request: Request) -> Response:
        """What has an effect, in one transaction; the store is called after it."""
        files = read_body(request, UploadRequest).files
        artifact = inputs.announce_input(organisation_of(request), files, actor=actor_of(request))
        return Response({"artifact_id": str(artifact.id)}, status.HTTP_201_CREATED)


class UploadCompleteView(APIView):
    """All bytes were sent."""

    permission_classes = [HasScope("jobs:read", write="jobs:write")]

    @extend_schema(
        operation_id="upload_complete",
        request=UploadComplete,
        responses={200: ArtifactView, **errors(400, 404, 409, 503)},
    )
    def post(self, request: Request, artifact_id: UUID) -> Response:
        """Check the bytes and make the input complete; repeating it is harmless.

        A large file may take minutes; who asks again meanwhile is answered 503 `upload_busy`, and asks later.
        """
        etags = read_body(request, UploadComplete).etags
        artifact = inputs.complete_input(organisation_of(request), artifact_id, etags, actor=actor_of(request))
        return answer(show_artifact(artifact))


class JobArtifactsView(APIView):
    """Checkpoints, outputs and prepared data of a job."""

    permission_classes = [HasScope("jobs:read")]

    @extend_schema(operation_id="job_artifacts", parameters=PAGE, responses={200: ArtifactPage, **errors(404)})
    def get(self, request: Request, job_id: UUID) -> Response:
        """Newest first, without the addresses of their files."""
        artifacts = _with_parts().filter(job=find_job(request, job_id))
        return answer_page(request, self, artifacts, list_artifacts)


class ArtifactDetailView(APIView):
    """One artifact."""

    permission_classes = [HasScope("jobs:read", write="jobs:write")]

    @extend_schema(operation_id="artifact_show", parameters=[DAMAGED], responses={200: ArtifactView, **errors(404)})
    def get(self, request: Request, artifact_id: UUID) -> Response:
        """With an address for each file, which expires, once the artifact is complete."""
        artifact = _with_parts().filter(organisation=organisation_of(request), pk=artifact_id).first()
        if artifact is None:
            raise ArtifactNotFound()
        return answer(show_artifact(artifact, is_damaged=request.query_params.get("damaged") == "true"))

    @extend_schema(operation_id="artifact_delete", responses={200: ArtifactView, **errors(404, 409)})
    def delete(self, request: Request, artifact_id: UUID) -> Response:
        """Delete the files of a complete artifact that no living job needs; a repeat changes nothing."""
        prune.delete_for(organisation_of(request), artifact_id, actor=actor_of(request))
        return answer(show_artifact(_with_parts().get(pk=artifact_id)))


class StorageUseView(APIView):
    """What the organisation keeps."""

    permission_classes = [HasScope("jobs:read")]

    @extend_schema(operation_id="storage", responses={200: StorageView})
    def get(self, request: Request) -> Response:
        """How much is kept and may be, what it costs beyond the free allowance, and the newest day that was charged."""
        return answer(show_storage(organisation_of(request).id))


def _with_parts() -> QuerySet[Artifact]:
    return Artifact.objects.prefetch_related("parts")
