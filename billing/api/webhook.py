"""/api/v1/stripe/webhook: takes what Stripe signed, stores it once, answers; what it means is worked out later."""

from __future__ import annotations

import json
import re
from typing import Final

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing import tasks
from billing.fiat import events
from billing.fiat.errors import WebhookRefused
from billing.rails.stripe import client as stripe_client
from billing.rails.stripe.records import EventRecord
from marketplace.foundation.serializers import Nothing

BODY_BYTES_MAX: Final = 512 * 1024
LENGTH: Final = re.compile(r"[0-9]{1,9}")
HEADER: Final = "Stripe-Signature"


class WebhookView(APIView):
    """Open to everybody, and cheap: a request that is not Stripe's fails at one comparison of a hash."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = []

    @extend_schema(
        operation_id="stripe_webhook",
        description="For the payment processor only: events with its signature over the raw body.",
        request={"application/json": dict},
        responses={200: Nothing},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        # 1. The raw bytes: what was signed, before anything has parsed it.
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not LENGTH.fullmatch(length) or int(length) > BODY_BYTES_MAX:
            raise WebhookRefused
        body = request._request.body
        if len(body) > BODY_BYTES_MAX or not stripe_client.is_signed(body, request.headers.get(HEADER, "")):
            raise WebhookRefused
        # 2. Once.
        events.store([_read(body)])
        # 3. Later.
        transaction.on_commit(tasks.tend_fiat.delay, robust=True)
        return Response({}, status=status.HTTP_200_OK)


def _read(body: bytes) -> EventRecord:
    try:
        record = EventRecord.read(json.loads(body))
        if events.is_handled(record.type, record.account):  # some of the others are about things without an id
            record.payload["data"]["object"]["id"]
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, OSError, RecursionError) as error:
        raise WebhookRefused from error
    return record
