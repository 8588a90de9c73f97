"""/api/v1/api-keys. No key can make, see more of, or revoke one that may do more than itself."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, status
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from marketplace.accounts import api_keys
from marketplace.accounts.errors import ScopeNotYours
from marketplace.accounts.models import ApiKey
from marketplace.accounts.requester import key_of, membership_of, organisation_of, scopes_of, user_of
from marketplace.accounts.scopes import Scope
from marketplace.accounts.serializers import ApiKeySummary, NewApiKey
from marketplace.foundation.errors import NotFound
from marketplace.foundation.idempotency import idempotent


class ApiKeysView(generics.ListAPIView[ApiKey]):
    """My keys in this organisation; with account:admin, everybody's."""

    permission_classes = [IsAuthenticated]
    serializer_class = ApiKeySummary
    queryset = ApiKey.objects.none()

    def get_queryset(self) -> QuerySet[ApiKey]:
        return _visible(self.request)

    @extend_schema(request=ApiKeySummary, responses={201: NewApiKey})
    @idempotent
    def post(self, request: Request) -> Response:
        asked = ApiKeySummary(data=request.data)
        asked.is_valid(raise_exception=True)
        data = dict(asked.validated_data)
        _refuse_excess(request, data["scopes"])
        own = key_of(request)
        if own is not None and own.expires_at is not None:  # a key must not outlive itself through another one
            data["expires_at"] = min(own.expires_at, data.get("expires_at") or own.expires_at)
        organisation = membership_of(request).organisation
        key, plaintext = api_keys.issue(user=user_of(request), organisation=organisation, **data)
        return Response({**ApiKeySummary(key).data, "key": plaintext}, status=status.HTTP_201_CREATED)


class ApiKeyView(APIView):
    """One key."""

    permission_classes = [IsAuthenticated]

    @extend_schema(responses={204: None})
    def delete(self, request: Request, key_id: UUID) -> Response:
        api_keys.revoke(_find(request, key_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class RotateApiKeyView(APIView):
    """A new key in place of one of mine, with the same name and scopes."""

    permission_classes = [IsAuthenticated]

    @extend_schema(request=None, responses={201: NewApiKey})
    @idempotent
    def post(self, request: Request, key_id: UUID) -> Response:
        key = _find(request, key_id)
        if key.user_id != user_of(request).pk or key.revoked_at is not None:
            raise NotFound
        own = key_of(request)
        # No key outlives itself through another one that it rotates.
        new, plaintext = api_keys.rotate(key, until=own.expires_at if own is not None else None)
        return Response({**ApiKeySummary(new).data, "key": plaintext}, status=status.HTTP_201_CREATED)


def _visible(request: Request) -> QuerySet[ApiKey]:
    is_mine = Q() if Scope.ACCOUNT_ADMIN in scopes_of(request) else Q(user=user_of(request))
    return ApiKey.objects.filter(is_mine, organisation=organisation_of(request))


def _find(request: Request, key_id: UUID) -> ApiKey:
    key = _visible(request).select_related("user", "organisation").filter(pk=key_id).first()
    if key is None:
        raise NotFound
    _refuse_excess(request, key.scopes)
    return key


def _refuse_excess(request: Request, scopes: list[str]) -> None:
    if excess := sorted(set(scopes) - scopes_of(request)):
        raise ScopeNotYours(scopes=", ".join(excess))
