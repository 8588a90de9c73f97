"""What a provider may do: make a computer a node, let a node rest or work, change its price."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from jobs.spec.units import parse_money
from marketplace.accounts.scopes import Scope
from marketplace.foundation.errors import BadRequest
from marketplace.nodes.api.serializers import OfferTermsSummary
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node
from marketplace.nodes.offering import availability, newest, offers
from marketplace.portal.earn.views import find_node, joining_context, provider_of
from marketplace.portal.visitors import Visitor, actor_of, organisation_of, page
from provider_agent.protocol.install_command import install_command

CHANGE: Final = "changing what an organisation rents out"
REASON: Final = "by the provider, on the site"


@page("GET", "POST")
def add_node(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """A line for one computer, shown once, and the steps until it is listed."""
    if request.method == "GET":  # whoever comes back to it
        return redirect("earn-page")
    provider = provider_of(visitor)
    token, text = enrolment.issue_token(provider, actor=actor_of(visitor))
    context = {"visitor": visitor, "command": install_command(settings.SOUK_API_URL, text)} | joining_context(token)
    return render(request, "portal/earn/add.html", context)


@page("POST")
def drain(request: HttpRequest, visitor: Visitor, node_id: UUID) -> HttpResponseBase:
    """It finishes what it has, and is given nothing new; repeating it is harmless."""
    node = _to_change(visitor, node_id)
    with newest.change_by_person(node):
        availability.drain(node, actor=actor_of(visitor), reason=REASON)
    return redirect("own-node-page", node_id)


@page("POST")
def resume(request: HttpRequest, visitor: Visitor, node_id: UUID) -> HttpResponseBase:
    """It takes work again; repeating it is harmless."""
    node = _to_change(visitor, node_id)
    with newest.change_by_person(node):
        availability.resume(node, actor=actor_of(visitor))
    return redirect("own-node-page", node_id)


@page("POST")
def set_price(request: HttpRequest, visitor: Visitor, node_id: UUID) -> HttpResponseBase:
    """Of a device and hour, for what is placed from now on; what runs keeps its price."""
    node = _to_change(visitor, node_id)
    try:
        price = parse_money(request.POST.get("price", ""))
    except ValueError as error:
        raise BadRequest(f"The price {error}. Write it in dollars for a device and hour, such as 0.35.") from error
    asked = OfferTermsSummary(data={"price_usd_micros_per_device_hour": price}, partial=True)
    if not asked.is_valid():
        raise BadRequest("This price is too high: nobody could pay it.")
    with newest.change_by_person(node):
        offers.change(node, **asked.validated_data)
    return redirect("own-node-page", node_id)


def _to_change(visitor: Visitor, node_id: UUID) -> Node:
    organisation_of(visitor, Scope.PROVIDER_WRITE, CHANGE)
    return find_node(visitor, node_id)
