"""/api/v1/endpoints: list, show, deploy a new version. An endpoint begins and ends as a job (/api/v1/jobs)."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import tasks
from jobs.api.bodies import answer, answer_page, find_input, read_body, read_spec
from jobs.api.schemas import IDEMPOTENCY_KEY, PAGE, EndpointPage, errors
from jobs.models import Endpoint
from jobs.serving import endpoints
from jobs.serving.errors import EndpointNotFound
from jobs.serving.views import list_endpoints
from jobs.wire import DeployRequest, EndpointView
from marketplace.accounts.asking import organisation_of
from marketplace.accounts.permissions import HasScope
from marketplace.foundation.actors import actor_of
from marketplace.foundation.idempotency import idempotent

MAY = [HasScope("jobs:read", write="jobs:write")]


class EndpointsView(APIView):
    """The organisation's endpoints."""

    permission_classes = MAY

    @extend_schema(operation_id="endpoints_list", parameters=PAGE, responses={200: EndpointPage})
    def get(self, request: Request) -> Response:
        """Newest first, those that are closed too, each with its versions and live replicas."""
        rows = Endpoint.objects.filter(organisation=organisation_of(request)).select_related("job", "organisation")
        return answer_page(request, self, rows, list_endpoints)


class EndpointDetailView(APIView):
    """One endpoint."""

    permission_classes = MAY

    @extend_schema(operation_id="endpoint_show", responses={200: EndpointView, **errors(404)})
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        """The endpoint with its versions and live replicas."""
        return answer(list_endpoints([_find(request, endpoint_id)])[0])


class VersionsView(APIView):
    """The versions of an endpoint."""

    permission_classes = MAY

    @extend_schema(
        operation_id="endpoint_deploy",
        parameters=[IDEMPOTENCY_KEY],
        request=DeployRequest,
        responses={201: EndpointView, **errors(400, 404, 409, 422)},
    )
    @idempotent
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Serve something else under the same name: the version takes over by its rollout, and can be taken back."""
        body = read_body(request, DeployRequest)
        spec, organisation = read_spec(body.spec), organisation_of(request)
        endpoints.deploy(
            endpoint_id,
            spec,
            organisation=organisation,
            files=find_input(organisation, spec, body.input_artifact_id),
            actor=actor_of(request),
        )
        tasks.keep_endpoints.delay()
        return answer(list_endpoints([_find(request, endpoint_id)])[0], status.HTTP_201_CREATED)


class TakeBackView(APIView):
    """The way back."""

    permission_classes = MAY

    @extend_schema(operation_id="endpoint_take_back", request=None, responses={200: EndpointView, **errors(404, 409)})
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Let the version before the newest answer again: at once, while its replicas are still there."""
        endpoints.take_back(endpoint_id, organisation=organisation_of(request))
        tasks.keep_endpoints.delay()
        return answer(list_endpoints([_find(request, endpoint_id)])[0])


def _find(request: Request, endpoint_id: UUID) -> Endpoint:
    found = Endpoint.objects.filter(organisation=organisation_of(request)).select_related("job", "organisation")
    endpoint = found.filter(pk=endpoint_id).first()
    if endpoint is None:
        raise EndpointNotFound()
    return endpoint
