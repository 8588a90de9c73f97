"""What the authentication left on a request: the user, the organisation and the scopes."""

from __future__ import annotations

from uuid import UUID

from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request

from marketplace.accounts.errors import OrganisationRequired
from marketplace.accounts.models import ApiKey, Membership, Organisation, User


def user_of(request: Request) -> User:
    """The user; raises NotAuthenticated when there is none."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def key_of(request: Request) -> ApiKey | None:
    """The API key that was used; None in a session."""
    return request.auth if isinstance(request.auth, ApiKey) else None


def key_id_of(request: Request) -> UUID | None:
    """The id of the API key that was used; None in a session."""
    key = key_of(request)
    return key.pk if key else None


def membership_of(request: Request) -> Membership:
    """The user's membership in the organisation that this request acts for; raises OrganisationRequired."""
    user = user_of(request)
    membership: Membership | None = getattr(request, "membership", None)
    if membership is None:
        raise OrganisationRequired(organisations=", ".join(map(str, user.organisations.values_list("pk", flat=True))))
    return membership


def organisation_of(request: Request) -> Organisation:
    """The organisation that this request acts for; raises OrganisationRequired."""
    return membership_of(request).organisation


def scopes_of(request: Request) -> frozenset[str]:
    """What this request may do."""
    return getattr(request, "scopes", frozenset())
