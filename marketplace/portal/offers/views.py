"""What the market has now. Anybody may look; the rows and their filters are those of GET /api/v1/offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe
from rest_framework.exceptions import ValidationError

from jobs.api.offers import PublicOffer, with_use
from marketplace.accounts.models import User
from marketplace.nodes.api.people import find_offers
from marketplace.portal.errors import TooManyRequests
from marketplace.portal.visitors import require_moderation, visitor_of, with_private_headers
from provider_agent.protocol import DeviceKind

OFFERS_SHOWN_MAX: Final = 200
SORTS: Final = {
    "price": ("lowest price first", ("price_usd_micros_per_device_hour", "pk")),
    "newest": ("newest first", ("-created_at", "pk")),
}
FILTERS: Final = ("kind", "model", "region", "memory_mib_min")
DTYPE: Final = "bfloat16"
TERA: Final = 1e12


@require_safe
def offers_page(request: HttpRequest) -> HttpResponseBase:
    """A question that has no answer gets a sentence, and 400."""
    given = {name: value for name, value in request.GET.dict().items() if value}
    context: dict[str, Any] = {
        "visitor": visitor_of(request, request.user) if isinstance(request.user, User) else None,
        "asked": given,
        "kinds": [kind.value for kind in DeviceKind],
        "sorts": {name: label for name, (label, _) in SORTS.items()},
    }
    try:
        require_moderation(request)
        context |= _answer(request, given)
    except TooManyRequests as error:
        context |= {"error": error.message, "status": error.status}
    except ValidationError:  # its words name what was sent, and an address may come from somebody else
        context["error"] = f"This list can be asked for {', '.join(FILTERS)} and sort, as the form below does."
    status = context.get("status", 400 if "error" in context else 200)
    response = render(request, "portal/offers/offers.html", context, status=status)
    return with_private_headers(response)


def _answer(request: HttpRequest, given: Mapping[str, str]) -> dict[str, Any]:
    """Raises ValidationError."""
    filters = {name: value for name, value in given.items() if name != "sort"}
    sort = given.get("sort", "price")
    if sort not in SORTS or not filters.keys() <= set(FILTERS):
        raise ValidationError
    found = list(with_use(find_offers(filters)).order_by(*SORTS[sort][1])[: OFFERS_SHOWN_MAX + 1])
    rows = PublicOffer(found[:OFFERS_SHOWN_MAX], many=True, context={"request": request}).data
    return {
        "offers": [row | {"groups": _groups(row["devices"])} for row in rows],
        "is_cut": len(found) > OFFERS_SHOWN_MAX,
        "shown_max": OFFERS_SHOWN_MAX,
    }


def _groups(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal devices counted together, with what one of them was measured to compute."""
    groups: dict[tuple[str, int], dict[str, Any]] = {}
    for device in devices:
        key = (device["model"], device["memory_mib"])
        flops = device["flops_per_second"].get(DTYPE)
        group = groups.setdefault(
            key, {"model": key[0], "memory_gib": key[1] / 1024, "count": 0, "tflops": flops / TERA if flops else None}
        )
        group["count"] += 1
    return list(groups.values())
