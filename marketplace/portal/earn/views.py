"""/earn: a provider's nodes, as GET /api/v1/provider/nodes has them, and what they earned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from rest_framework.request import Request

from billing.account_kinds import AccountKind
from billing.books.owned import balances_of
from billing.models.ledger import USD_ASSET_CODE
from jobs.bills.earnings import earned_by_each
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.foundation.errors import NotFound
from marketplace.nodes.api.people import NewestEnrolledFirst, find_offers, with_parts
from marketplace.nodes.api.serializers import OwnNode
from marketplace.nodes.models import EnrolmentToken, Node, Provider
from marketplace.nodes.states import NodeState
from marketplace.portal.amounts import amounts_of
from marketplace.portal.visitors import Visitor, organisation_of, page
from provider_agent.protocol import Earnings

SEE: Final = "seeing what an organisation rents out"
CHECKS_SHOWN_MAX: Final = 5
EARNED: Final = {
    AccountKind.PROVIDER_PENDING: "earned, may still be contested",
    AccountKind.PROVIDER_AVAILABLE: "can be paid out",
    AccountKind.PROVIDER_RESERVE: "kept back for a while",
    AccountKind.PAYOUT_CLEARING: "on its way to you",
}
ALWAYS_SHOWN: Final = {AccountKind.PROVIDER_PENDING, AccountKind.PROVIDER_AVAILABLE}
MAY_DRAIN: Final = {NodeState.ONLINE, NodeState.OFFLINE}


@dataclass(frozen=True)
class ShownNode:
    """A node as its provider sees it."""

    row: Node
    view: dict[str, Any]  # OwnNode
    earned: Earnings
    is_listed: bool

    @property
    def is_drained(self) -> bool:
        """Whether it was asked to take nothing new."""
        return self.view["drain_requested_at"] is not None

    @property
    def may_change(self) -> bool:
        """Whether it has not left for good, and nobody took it out."""
        return self.view["state"] in {*MAY_DRAIN, NodeState.DRAINING}


@page("GET")
def earn_page(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """The nodes, newest first, and what is earned; how to begin, where there are none."""
    organisation = organisation_of(visitor, Scope.PROVIDER_READ, SEE)
    nodes = with_parts(Node.objects.filter(provider__organisation=organisation))
    paginator = NewestEnrolledFirst()
    rows = paginator.paginate_queryset(nodes, Request(request)) or []
    context = {
        "visitor": visitor,
        "nodes": _shown(rows),
        "balances": [
            (each.asset, amounts_of(each, EARNED, ALWAYS_SHOWN if each.asset == USD_ASSET_CODE else ()))
            for each in balances_of(organisation.pk)
        ],
        "may_change": visitor.may(Scope.PROVIDER_WRITE),
        "newer": urlsplit(paginator.get_previous_link() or "").query,
        "older": urlsplit(paginator.get_next_link() or "").query,
    }
    return render(request, "portal/earn/earn.html", context)


@page("GET")
def own_node_page(request: HttpRequest, visitor: Visitor, node_id: UUID) -> HttpResponseBase:
    """One node: its devices, its offer, its newest checks, and what may be done to it."""
    node = find_node(visitor, node_id)
    [shown] = _shown([node])
    checks = node.checks.order_by("-demanded_at").defer("plan", "roots", "openings", "revealed", "recalls")
    context = {
        "visitor": visitor,
        "node": shown,
        "checks": checks[:CHECKS_SHOWN_MAX],
        "may_change": visitor.may(Scope.PROVIDER_WRITE) and shown.may_change,
    }
    return render(request, "portal/earn/node.html", context)


@page("GET")
def joining(request: HttpRequest, visitor: Visitor, token_id: UUID) -> HttpResponseBase:
    """How far the computer is whose line was made with this token."""
    organisation = organisation_of(visitor, Scope.PROVIDER_READ, SEE)
    tokens = EnrolmentToken.objects.filter(provider__organisation=organisation).select_related("node")
    token = tokens.filter(pk=token_id).first()
    if token is None:
        raise NotFound()
    return render(request, "portal/earn/joining.html", joining_context(token))


def joining_context(token: EnrolmentToken) -> dict[str, Any]:
    """The steps of a joining computer, each done or not; the last one ends the asking."""
    node = token.node
    is_listed = node is not None and find_offers({}).filter(node=node).exists()
    steps = [
        ("The installer has run, and the node is enrolled", node is not None),
        ("Its devices are measured", node is not None and node.measured_at is not None),
        ("It is listed: customers can rent it", is_listed),
    ]
    is_unused = node is None and token.expires_at <= clock.now()
    is_out = node is not None and node.state not in {NodeState.ONLINE, NodeState.OFFLINE}
    context = {"token": token, "node": node, "steps": steps, "is_unused": is_unused}
    return context | {"is_over": is_listed or is_unused or is_out}


def find_node(visitor: Visitor, node_id: UUID) -> Node:
    """A node of the organisation in whose name the visitor acts. Raises Forbidden, NotFound."""
    organisation = organisation_of(visitor, Scope.PROVIDER_READ, SEE)
    node = with_parts(Node.objects.filter(provider__organisation=organisation, pk=node_id)).first()
    if node is None:
        raise NotFound
    return node


def provider_of(visitor: Visitor) -> Provider:
    """The selling side of the organisation, made at the first use. Raises Forbidden."""
    organisation = organisation_of(visitor, Scope.PROVIDER_WRITE, "renting out for an organisation")
    return Provider.objects.get_or_create(organisation=organisation, defaults={"display_name": organisation.name})[0]


def _shown(nodes: list[Node]) -> list[ShownNode]:
    listed = set(find_offers({}).filter(node__in=nodes).values_list("node_id", flat=True))
    earned = earned_by_each(nodes)
    return [ShownNode(node, dict(OwnNode(node).data), earned[node.pk], node.pk in listed) for node in nodes]
