"""In whose name something happens: one string for events, idempotency keys and logs."""

from __future__ import annotations

from rest_framework.request import Request

ANONYMOUS = "anonymous"


def actor_of(request: Request) -> str:
    """`<organisation>:<user>` of an authenticated request, `node:<id>` of an agent's, else "anonymous"."""
    user = request.user
    if user is None or not user.is_authenticated:
        return ANONYMOUS
    organisation = getattr(request, "organisation", None)
    return f"{organisation.pk}:{user.pk}" if organisation is not None else str(user.pk)
