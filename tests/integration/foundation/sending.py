"""Requests with an idempotency key, and the effects that they had."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from marketplace.accounts.models import User
from marketplace.foundation import clock, ids
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.models import IdempotencyKey, OutboxMessage

SECRET = "souk_abc_a-secret-shown-once"


class CreateView(APIView):
    """Creates one row a call, then ends as the body sets."""

    throttle_classes: Any = []

    @idempotent
    def post(self, request: Request) -> Response:
        row = OutboxMessage.objects.create(kind="effect", business_key=str(ids.new_id()))
        match dict(request.data).get("then"):
            case "refuse":
                raise PermissionDenied("no")
            case "break":
                raise RuntimeError("a bug")
            case "be late":  # another server took this request over in the meantime
                IdempotencyKey.objects.update(started_at=clock.now() + timedelta(seconds=1))
        return Response({"id": row.pk, "key": SECRET}, status=201)


def send(user: User, body: dict[str, Any], key: str | None = "k-1", view: type[APIView] = CreateView) -> Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    request = APIRequestFactory().post("/things", body, format="json", headers=headers)
    force_authenticate(request, user)
    response: Response = view.as_view()(request)
    return response.render() if hasattr(response, "render") else response


def effects() -> int:
    return OutboxMessage.objects.count()
