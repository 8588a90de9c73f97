"""/api/v1/endpoints: list, show, deploy a new version. An endpoint begins and ends as a job (/api/v1/jobs)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import tasks
from jobs.api.bodies import answer, answer_page, find_input, read_body, read_spec
from jobs.api.schemas import IDEMPOTENCY_KEY, PAGE, EndpointPage, errors
from jobs.endpoints import versions
from jobs.endpoints.errors import EndpointNotFound, NothingToRollBack, NothingToTakeBack
from jobs.endpoints.views import list_endpoints
from jobs.models import Endpoint
from jobs.wire import DeployRequest, EndpointView
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.actors import actor_of
from marketplace.foundation.idempotency import idempotent

MAY = [HasScope("jobs:read", write="jobs:write")]
TAKE_BACK_DEPRECATED: Final = "@1795392000"  # RFC 9745: since when, in Unix time (2026-11-23)


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
        """Serve something else under the same name: the version takes over by its rollout, and can be rolled back."""
        body = read_body(request, DeployRequest)
        spec, organisation = read_spec(body.spec), organisation_of(request)
        versions.deploy(
            endpoint_id,
            spec,
            organisation=organisation,
            files=find_input(organisation, spec, body.input_artifact_id),
            actor=actor_of(request),
        )
        tasks.keep_endpoints.delay()
        return answer(list_endpoints([_find(request, endpoint_id)])[0], status.HTTP_201_CREATED)


class RollbackView(APIView):
    """A rollback to the version before the newest."""

    permission_classes = MAY

    @extend_schema(operation_id="endpoint_rollback", request=None, responses={200: EndpointView, **errors(404, 409)})
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Let the version before the newest answer again: at once, while its replicas are still there."""
        versions.roll_back(endpoint_id, organisation=organisation_of(request))
        tasks.keep_endpoints.delay()
        return answer(list_endpoints([_find(request, endpoint_id)])[0])


class TakeBackView(RollbackView):
    """The former address of a rollback. It works for one version more, and its answers say that it is deprecated."""

    @extend_schema(
        operation_id="endpoint_take_back",
        request=None,
        responses={200: EndpointView, **errors(404, 409)},
        deprecated=True,
    )
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        """Deprecated: POST to /api/v1/endpoints/{endpoint_id}/rollback instead."""
        try:
            return super().post(request, endpoint_id)
        except NothingToRollBack as error:
            raise NothingToTakeBack() from error

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Every answer, errors included, has headers for the deprecation (RFC 9745) and for the successor's address."""
        successor = reverse("endpoint-rollback", kwargs={"endpoint_id": self.kwargs["endpoint_id"]})
        response["Deprecation"] = TAKE_BACK_DEPRECATED
        response["Link"] = f'<{successor}>; rel="successor-version"'
        return super().finalize_response(request, response, *args, **kwargs)


def _find(request: Request, endpoint_id: UUID) -> Endpoint:
    found = Endpoint.objects.filter(organisation=organisation_of(request)).select_related("job", "organisation")
    endpoint = found.filter(pk=endpoint_id).first()
    if endpoint is None:
        raise EndpointNotFound()
    return endpoint
