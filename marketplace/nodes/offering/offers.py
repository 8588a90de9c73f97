"""On which terms a node's devices may be rented. A lease freezes its price, so a change never touches what runs."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from marketplace.nodes.errors import BadFacts, NoOpenOffer
from marketplace.nodes.models import Node, Offer
from provider_agent.protocol import OfferTerms


def publish(node: Node, terms: OfferTerms) -> Offer:
    """The node's one open offer; the one before is closed and kept."""
    if terms.seconds_max < terms.seconds_min:
        raise BadFacts(problem="the longest duration of the offer is shorter than the shortest")
    with transaction.atomic():
        Node.objects.select_for_update().get(pk=node.pk)  # two changes at once come one after the other
        _close(node)
        return Offer.objects.create(node=node, **terms.model_dump())


def withdraw(node: Node) -> int:
    """Close the node's offer; returns how many were open (0 or 1)."""
    return _close(node)


def change(node: Node, **changes: Any) -> Offer:
    """Publish the open offer again with some of its terms changed, if any is; raises NoOpenOffer."""
    with transaction.atomic():
        Node.objects.select_for_update().get(pk=node.pk)
        offer = node.offers.filter(is_open=True).first()
        if offer is None:
            raise NoOpenOffer
        terms = {name: getattr(offer, name) for name in OfferTerms.model_fields}
        if terms | changes == terms:
            return offer
        return publish(node, OfferTerms(**(terms | changes)))


def _close(node: Node) -> int:
    return node.offers.filter(is_open=True).update(is_open=False)
