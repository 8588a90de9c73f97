"""Signed bytes go out to every endpoint, and out again when nodes forgot them: the same bytes, however often."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from django.db.models import QuerySet

from billing.chain.errors import EndpointsUnreachable
from billing.chain.keys import SigningKey
from billing.chain.reading.client import ChainClient
from billing.models import ChainTransaction
from billing.states.chain import TransactionState as State
from marketplace.foundation import clock
from marketplace.foundation.states import advance

# Nodes' errors for a transaction that offers less than the newest block costs.
OFFERS_TOO_LITTLE: Final = ("less than block base fee", "less than the block base fee", "underpriced", "fee too low")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sender:
    """Where one signer's transactions are made: the chain, and the key."""

    client: ChainClient
    key: SigningKey

    @property
    def chain_id(self) -> int:
        return self.client.config.chain_id

    @property
    def mine(self) -> QuerySet[ChainTransaction]:
        """Every transaction of this signer on this chain."""
        return ChainTransaction.objects.filter(chain_id=self.chain_id, signer=self.key.address)


def send_due(sender: Sender) -> int:
    """Send what is signed and not out, in the order of its nonces; how many. Raises EndpointsUnreachable."""
    sent = 0
    for one in sender.mine.filter(state__in=[State.SIGNED, State.REORGED]).order_by("nonce", "created_at"):
        broadcast(sender, one)
        sent += 1
    return sent


def broadcast(sender: Sender, one: ChainTransaction) -> None:
    """Send to every endpoint, and write down that it is out; raises EndpointsUnreachable."""
    try:
        sender.client.broadcast(one.raw)
    except EndpointsUnreachable as error:
        offers_too_little = any(words in str(error).lower() for words in OFFERS_TOO_LITTLE)
        # A node that has mined it may answer with any text; what is too cheap by now is sent again with higher fees.
        if not offers_too_little and sender.client.receipt(one.hash) is None:
            raise
    advance(one, State.BROADCAST, data={"hash": one.hash}, sent_at=clock.now())


def broadcast_again(sender: Sender, one: ChainTransaction) -> None:
    """Nodes forget, and take nothing that offers less than the newest block costs: its turn comes, or more fees."""
    try:
        sender.client.broadcast(one.raw)
    except EndpointsUnreachable as error:
        log.info("No node takes it again now. hash=%s error=%s", one.hash, error)


def nonce_of(one: ChainTransaction) -> int:
    """The nonce of one that was signed; ValueError for one that never was."""
    if one.nonce is None:
        raise ValueError(f"{one} was never signed")
    return one.nonce
