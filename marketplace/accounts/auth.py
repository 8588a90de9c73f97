"""Who a request is from, in whose name it acts, and what it may do: by API key, or by the portal's session.

Both leave three things on the request, which `requester.py` reads: organisation, membership, scopes.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from marketplace.accounts import api_keys
from marketplace.accounts.errors import NotAMember
from marketplace.accounts.models import ApiKey, Membership, User
from marketplace.accounts.scopes import ROLE_SCOPES

HEADER_ORGANISATION = "Souk-Organisation"


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer souk_...`. The key's scopes count as far as its user's role still allows them."""

    def authenticate(self, request: Request) -> tuple[User, ApiKey] | None:
        scheme, _, plaintext = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        key = api_keys.verify(plaintext.strip())
        membership = None
        if key is not None:
            membership = Membership.objects.filter(user=key.user, organisation=key.organisation).first()
        if key is None or membership is None:
            raise AuthenticationFailed("This API key is unknown, revoked or expired.", code="api_key_refused")
        membership.organisation = key.organisation
        _set(request, membership, frozenset(key.scopes) & ROLE_SCOPES[membership.role])
        return key.user, key

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class OrganisationSessionAuthentication(SessionAuthentication):
    """The portal's session, with its protection against forged requests. Acts for the organisation of the header
    Souk-Organisation, or for the user's only one."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        found = super().authenticate(request)
        if found is None:
            return None
        user = found[0]
        memberships = Membership.objects.filter(user=user).select_related("organisation")
        if wanted := request.headers.get(HEADER_ORGANISATION):
            membership = memberships.filter(organisation=_uuid(wanted)).first()
            if membership is None:
                raise NotAMember
        else:
            some = list(memberships[:2])
            membership = some[0] if len(some) == 1 else None
        _set(request, membership, ROLE_SCOPES[membership.role] if membership else frozenset())
        return user, None


def _set(request: Request, membership: Membership | None, scopes: frozenset[str]) -> None:
    request.membership = membership  # type: ignore[attr-defined]
    request.organisation = membership.organisation if membership else None  # type: ignore[attr-defined]
    request.scopes = scopes  # type: ignore[attr-defined]


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotAMember from None
