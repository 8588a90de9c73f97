"""Which scope a view needs. `permission_classes = [HasScope("jobs:read", write="jobs:write")]`

What a request gives to somebody is bounded by what it may do itself: `require_role`, `require_role_over`,
`ActsForWholeUser`. What somebody ordered and is done later is bounded by what they may do then: `require_right`.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from django.conf import settings
from rest_framework.permissions import SAFE_METHODS, BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView

from marketplace.accounts import api_keys, signup
from marketplace.accounts.errors import (
    EmailUnverified,
    KeyTooNarrow,
    OrderOutdated,
    OwnerNotYours,
    RoleNotYours,
    ScopeMissing,
)
from marketplace.accounts.models import ApiKey, Membership, Role, User
from marketplace.accounts.requester import key_of, membership_of, scopes_of, user_of
from marketplace.accounts.scopes import ROLE_SCOPES, Scope


class _ScopePermission(BasePermission):
    """The request acts for an organisation, and its key and role have the scope."""

    read: ClassVar[Scope]
    write: ClassVar[Scope]

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Raises ScopeMissing, which names the scope, and EmailUnverified where something would be done.

        False for a request without a user.
        """
        if not request.user or not request.user.is_authenticated:
            return False
        membership_of(request)
        scope = self.read if request.method in SAFE_METHODS else self.write
        if scope not in scopes_of(request):
            raise ScopeMissing(scope=str(scope))
        if request.method not in SAFE_METHODS and signup.is_unverified(user_of(request)):
            raise EmailUnverified(address=f"{settings.SOUK_API_URL}/password/forgotten")
        return True


def _has_scope(scope: str, *, write: str | None = None) -> type[BasePermission]:
    """The permission class of a scope; `write`, if given, is for every method but GET, HEAD and OPTIONS."""
    scopes = {"read": Scope(scope), "write": Scope(write or scope)}
    return type("HasScope", (_ScopePermission,), scopes)


HasScope = _has_scope


class ActsForWholeUser(IsAuthenticated):
    """For what changes where a user belongs: a session, or a key with all that the user's role may do."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Raises KeyTooNarrow for a lesser key; reading is for every key."""
        if not super().has_permission(request, view):
            return False
        if request.method in SAFE_METHODS or key_of(request) is None:
            return True
        if lacking := ROLE_SCOPES[membership_of(request).role] - scopes_of(request):
            raise KeyTooNarrow(scopes=", ".join(sorted(lacking)))
        return True


def require_role_over(request: Request, member: Membership) -> None:
    """Return where the request may take this member's role away; raises OwnerNotYours, for owners alone may with them.

    In person, or with a key that has an owner's scopes: a key for account:admin alone is for the other members.
    """
    if member.role == Role.OWNER and (lacking := ROLE_SCOPES[Role.OWNER] - scopes_of(request)):
        raise OwnerNotYours(scopes=", ".join(sorted(lacking)))


def require_role(request: Request, role: str) -> None:
    """Return where the request may do all that the role may; raises RoleNotYours."""
    if lacking := ROLE_SCOPES[role] - scopes_of(request):
        raise RoleNotYours(role=role, scopes=", ".join(sorted(lacking)))


def require_right(user: User | None, organisation_id: UUID, scope: Scope, *, key_id: UUID | None) -> None:
    """Return where this member may do now what they ordered then; raises OrderOutdated, which says what has changed.

    `key_id`: the API key that they ordered it with; None: in person. Call it in the transaction that does it: until its
    end nobody takes the membership or the key away.
    """
    if user is None or not User.objects.filter(pk=user.pk, is_active=True).exists():
        raise OrderOutdated(why="whoever ordered it has no account any more")
    members = Membership.objects.select_for_update(no_key=True, of=("self",))
    membership = members.filter(user=user, organisation_id=organisation_id).first()
    if membership is None:
        raise OrderOutdated(why="whoever ordered it is no member of the organisation any more")
    if scope not in ROLE_SCOPES[membership.role]:
        raise OrderOutdated(why=f"whoever ordered it has another role now, {membership.role}, without {scope}")
    if signup.is_unverified(user):
        raise OrderOutdated(why="whoever ordered it has not verified their address")
    if key_id is None:
        return
    keys = ApiKey.objects.select_for_update(no_key=True, of=("self",))
    key = keys.filter(api_keys.live(), pk=key_id, user=user, organisation_id=organisation_id).first()
    if key is None or scope not in key.scopes:
        raise OrderOutdated(why="the API key that it was ordered with was revoked, or has expired")
