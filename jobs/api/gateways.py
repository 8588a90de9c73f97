"""The gateways' two calls, beside the public API: they need the gateways' token.

POST /internal/gateway/v1/sync   what one sees, answered by what it should know
POST /internal/gateway/v1/keys   who holds these keys
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import wraps

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from pydantic import BaseModel

from jobs import tasks
from jobs.endpoints import ingest, keys
from jobs.endpoints.errors import GatewayUnknown
from jobs.endpoints.publish import table_now
from jobs.endpoints.usage import ingest_usage
from jobs.errors import BodyTooLarge
from jobs.gateway.messages import SYNC_BODY_BYTES_MAX, GatewayAnswer, GatewaySync, KeyAnswer, KeyQuestion
from jobs.serving import audits

View = Callable[[HttpRequest], HttpResponse]


def _for_gateways(view: Callable[[bytes], BaseModel]) -> View:
    @csrf_exempt
    @require_POST
    @wraps(view)
    def wrapped(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("Authorization", "")
        wanted = f"Bearer {settings.SOUK_GATEWAY_TOKEN}"
        if not settings.SOUK_GATEWAY_TOKEN or not hmac.compare_digest(given.encode(), wanted.encode()):
            raise GatewayUnknown()
        body = request.read(SYNC_BODY_BYTES_MAX + 1)
        if len(body) > SYNC_BODY_BYTES_MAX:
            raise BodyTooLarge(bytes_max=SYNC_BODY_BYTES_MAX)
        return HttpResponse(view(bytes(body)).model_dump_json().encode(), content_type="application/json")

    return wrapped


@_for_gateways
def sync(body: bytes) -> BaseModel:
    """One gateway's report, and the answer to it."""
    sync_request = GatewaySync.model_validate_json(body)
    gateway = ingest.ingest_sync(sync_request)
    usage_seq = ingest_usage(gateway.pk, sync_request.usage)
    audits.ingest_audits(sync_request.audits)
    if any(load.is_wanted for load in sync_request.loads):
        transaction.on_commit(tasks.keep_endpoints.delay, robust=True)
    version, table = table_now()
    return GatewayAnswer(
        version=version,
        table=None if version == sync_request.known else table,
        grants=[*keys.key_grants_for(gateway.pk, key_ids=sync_request.keys), *keys.refused_key_grants(gateway.pk)],
        usage_seq=usage_seq,
    )


@_for_gateways
def look_up_keys(body: bytes) -> BaseModel:
    """Who holds keys that a gateway does not know; those that nobody holds are left out."""
    question = KeyQuestion.model_validate_json(body)
    return KeyAnswer(grants=keys.key_grants_for(question.gateway_id, key_hashes=question.key_hashes))
