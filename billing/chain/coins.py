"""The coins that our keys pay gas with: how long they last, and an alert before they do not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from billing.chain import keys
from billing.chain.errors import SignerMissing
from billing.chain.keys import Role
from billing.chain.reading.client import ChainClient, client_of
from billing.chain.transactions import fees
from billing.models import ChainTransaction, Signer
from billing.notices import alerts

GAS_USUAL: Final = 200_000  # of a key that has sent nothing yet
SENT_LOOKED_AT: Final = 20  # the newest ones


@dataclass(frozen=True)
class SignerCoins:
    """One key of ours on one chain; amounts in the coin's base units."""

    chain_id: int
    address: str
    roles: tuple[str, ...]  # that it is configured for, not those in the contract; none: it signed once
    coins: int
    transaction_cost: int  # the most that one of its usual transactions is offered for now

    @property
    def transactions(self) -> int:
        """How many transactions its coins last for at the fees of now."""
        return self.coins // self.transaction_cost


def signers(chain_id: int) -> list[SignerCoins]:
    """Every key that signs here, or has; raises ChainError."""
    roles: dict[str, list[str]] = defaultdict(list)
    for role in Role:
        try:
            roles[keys.key_for(role).address].append(str(role))
        except SignerMissing:
            continue
    for address in Signer.objects.filter(chain_id=chain_id).values_list("address", flat=True):
        roles.setdefault(address, [])
    client = client_of(chain_id)
    price = _price(client)
    return [
        SignerCoins(chain_id, address, tuple(its), client.coins(address), _usual_gas(chain_id, address) * price)
        for address, its in sorted(roles.items())
    ]


def watch(chain_id: int) -> int:
    """Alert of each key that is configured and has coins for too few transactions; how many there are."""
    low = 0
    for one in signers(chain_id):
        key = f"chain:coins:{chain_id}:{one.address}"
        if not one.roles or one.transactions >= settings.SOUK_CHAIN_TRANSACTIONS_MIN:
            alerts.close(key)
            continue
        low += 1
        alerts.raise_once(
            key,
            kind="chain_coins",
            severity=alerts.Severity.WARNING if one.transactions else alerts.Severity.CRITICAL,
            subject=one.address,
            message=f"The coins of {one.address} ({', '.join(one.roles)}) on the chain {chain_id} last for"
            f" {one.transactions} transactions at the fees of now; {settings.SOUK_CHAIN_TRANSACTIONS_MIN} are wanted.",
        )
    return low


def _price(client: ChainClient) -> int:
    """What a transaction is offered for a unit of gas now; the limit, where the chain costs more."""
    base_fee, priority_fee = client.fee_now()
    offer = fees.first_offer(base_fee, priority_fee, limit=client.config.max_fee)
    return max(1, offer.max_fee if offer else client.config.max_fee)


def _usual_gas(chain_id: int, address: str) -> int:
    sent = ChainTransaction.objects.filter(chain_id=chain_id, signer=address, gas__gt=0).order_by("-created_at")
    limits = list(sent.values_list("gas", flat=True)[:SENT_LOOKED_AT])
    return -(-sum(limits) // len(limits)) if limits else GAS_USUAL
