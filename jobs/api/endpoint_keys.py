"""/api/v1/endpoint-keys: keys with which programs call models. /api/v1/usage: what was used."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.bodies import answer, answer_page, read_body, read_query
from jobs.api.schemas import IDEMPOTENCY_KEY, PAGE, errors
from jobs.endpoints import keys
from jobs.endpoints.usage_views import show_key, show_keys, show_usage
from jobs.models import EndpointKey
from jobs.wire.usage import (
    EndpointKeyPage,
    EndpointKeyRequest,
    EndpointKeyView,
    NewEndpointKeyView,
    UsageQuery,
    UsageView,
)
from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import membership_of, organisation_of, user_of
from marketplace.foundation.idempotency import idempotent

_QUERY = [
    OpenApiParameter("from", OpenApiTypes.DATE, description="The first day, UTC; 30 days where it is left out."),
    OpenApiParameter("to", OpenApiTypes.DATE, description="The last day, UTC; today where it is left out."),
    OpenApiParameter("group", OpenApiTypes.STR, enum=["day", "key", "model", "endpoint"], description="Added up by."),
    OpenApiParameter(
        "side",
        OpenApiTypes.STR,
        enum=["caller", "owner"],
        description="caller: what you called. owner: what other organisations called of yours.",
    ),
]


class EndpointKeysView(APIView):
    """The organisation's keys for endpoints."""

    permission_classes = [HasScope("jobs:read", write="jobs:write")]

    @extend_schema(operation_id="endpoint_keys_list", parameters=PAGE, responses={200: EndpointKeyPage})
    def get(self, request: Request) -> Response:
        """Newest first, with what was spent; without the pages' own."""
        rows = EndpointKey.objects.filter(organisation=organisation_of(request), kind=EndpointKey.Kind.ENDPOINT)
        return answer_page(request, self, rows, show_keys)

    @extend_schema(
        operation_id="endpoint_key_create",
        parameters=[IDEMPOTENCY_KEY],
        request=EndpointKeyRequest,
        responses={201: NewEndpointKeyView, **errors(400, 409)},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """A new key; its text is in this answer and nowhere else."""
        body = read_body(request, EndpointKeyRequest)
        limits = body.model_dump(include=set(keys.KeyLimits.__dataclass_fields__))
        key, text = keys.issue(
            organisation=membership_of(request).organisation,
            user=user_of(request),
            name=body.name,
            endpoint_ids=body.endpoint_ids,
            limits=keys.KeyLimits(**limits),
            expires_at=body.expires_at,
        )
        return answer(NewEndpointKeyView(**show_key(key).model_dump(), key=text), status.HTTP_201_CREATED)


class EndpointKeyDetailView(APIView):
    """One key."""

    permission_classes = [HasScope("jobs:read", write="jobs:write")]

    @extend_schema(operation_id="endpoint_key_revoke", responses={200: EndpointKeyView, **errors(404)})
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Revoke it: gateways refuse it within about a second; a repeat changes nothing."""
        return answer(show_key(keys.revoke(key_id, organisation=membership_of(request).organisation)))


class UsageApi(APIView):
    """What was used."""

    permission_classes = [HasScope("billing:read")]

    @extend_schema(operation_id="usage_show", parameters=_QUERY, responses={200: UsageView, **errors(400)})
    def get(self, request: Request) -> Response:
        """Requests, tokens and cost by day, key, model or endpoint."""
        return answer(show_usage(membership_of(request).organisation, read_query(request, UsageQuery)))
