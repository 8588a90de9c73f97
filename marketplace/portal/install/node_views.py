"""The page of one node: whether it is listed, and what it offers."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from marketplace.nodes.models import Node, Offer
from marketplace.portal.amounts import price_text


@require_safe
@never_cache
def node_page(request: HttpRequest, node_id: UUID) -> HttpResponse:
    """The public part of a node: whether it is listed, and what it offers."""
    return render(request, "portal/install/node.html", {"node": _node(node_id), "listing": _listing(node_id)})


@require_safe
@never_cache
def node_state(request: HttpRequest, node_id: UUID) -> JsonResponse:
    """The same for programs; the installer polls it until the node is listed."""
    node = _node(node_id)
    return JsonResponse({"name": node.name, "state": node.state, "is_listed": _listing(node_id)["is_listed"]})


def _node(node_id: UUID) -> Node:
    return get_object_or_404(Node.objects.select_related("provider"), pk=node_id)


def _listing(node_id: UUID) -> dict[str, object]:
    offer = Offer.objects.rentable().filter(node_id=node_id).first()
    devices = list(get_object_or_404(Node, pk=node_id).devices.all())
    price = price_text(offer.price_usd_micros_per_device_hour) if offer else ""
    return {"is_listed": offer is not None, "price": price, "devices": devices}
