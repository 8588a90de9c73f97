"""The event log, and the webhook endpoints that receive it."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any, Final

from tests.fakes.stripe.customers import merge_metadata
from tests.fakes.stripe.errors import absent, missing
from tests.fakes.stripe.routes import Call, route
from tests.fakes.stripe.shapes import Object, webhook_endpoint
from tests.fakes.stripe.store import PLATFORM, in_range

if TYPE_CHECKING:
    from tests.fakes.stripe.fake import FakeStripe

KEPT_SECONDS: Final = 30 * 24 * 3600


def sign(body: bytes, secret: str, at: int) -> str:
    """Stripe's signature header of a body: t=seconds,v1=HMAC-SHA256 of "t.body"."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


@route("GET", "/v1/events", "EventListParams")
def list_events(stripe: FakeStripe, call: Call) -> Object:
    params = call.params
    types = params.get("types") or ([params["type"]] if "type" in params else ["*"])
    oldest = stripe.clock.now() - KEPT_SECONDS
    rows = [
        row
        for row in reversed(stripe.events)
        if row.get("account", PLATFORM) == call.account
        and row["created"] >= oldest
        and is_wanted(row, types)
        and in_range(row["created"], params.get("created"))
    ]
    return stripe.store.page_of(rows, params, call.path)


@route("GET", "/v1/events/{id}", "EventRetrieveParams")
def retrieve_event(stripe: FakeStripe, call: Call, id: str) -> Object:
    for row in stripe.events:
        if row["id"] == id and row.get("account", PLATFORM) == call.account:
            return row
    raise absent("event", id)


@route("POST", "/v1/webhook_endpoints", "WebhookEndpointCreateParams")
def create_endpoint(stripe: FakeStripe, call: Call) -> Object:
    for name in ("url", "enabled_events"):
        if name not in call.params:
            raise missing(name)
    fields = webhook_endpoint() | {
        "description": call.params.get("description"),
        "enabled_events": call.params["enabled_events"],
        "url": call.params["url"],
    }
    made = stripe.store.add(PLATFORM, fields, prefix="we")
    merge_metadata(made, call.params)
    secret = stripe.endpoint_secrets[made["id"]] = stripe.store.new_id("whsec", 32)
    return {**made, "secret": secret}  # shown this once


@route("GET", "/v1/webhook_endpoints", "WebhookEndpointListParams")
def list_endpoints(stripe: FakeStripe, call: Call) -> Object:
    return stripe.store.page(PLATFORM, "webhook_endpoint", call.params, call.path)


@route("GET", "/v1/webhook_endpoints/{id}", "WebhookEndpointRetrieveParams")
def retrieve_endpoint(stripe: FakeStripe, call: Call, id: str) -> Object:
    return stripe.store.get(PLATFORM, "webhook_endpoint", id)


@route("POST", "/v1/webhook_endpoints/{id}", "WebhookEndpointUpdateParams")
def update_endpoint(stripe: FakeStripe, call: Call, id: str) -> Object:
    found = stripe.store.get(PLATFORM, "webhook_endpoint", id)
    for name in ("url", "enabled_events", "description"):
        if name in call.params:
            found[name] = call.params[name]
    if "disabled" in call.params:
        found["status"] = "disabled" if call.params["disabled"] == "true" else "enabled"
    merge_metadata(found, call.params)
    return found


@route("DELETE", "/v1/webhook_endpoints/{id}")
def delete_endpoint(stripe: FakeStripe, call: Call, id: str) -> Object:
    stripe.store.get(PLATFORM, "webhook_endpoint", id)
    stripe.store.remove(PLATFORM, id)
    return {"id": id, "object": "webhook_endpoint", "deleted": True}


def is_wanted(row: Object, types: Any) -> bool:
    """Whether an event is of one of these types; `charge.*` names a family."""
    return any(
        one == "*" or row["type"] == one or (one.endswith(".*") and row["type"].startswith(one[:-1])) for one in types
    )
