"""Payments in by a chain: a purchase of credit from the escrow contract pays in, without a request before."""

from __future__ import annotations

from typing import ClassVar

from billing.chain.config import chains
from billing.chain.wallets import credit_owner
from billing.models import ChainEvent, EscrowContract
from billing.rails.payments_in import ObservedPayments, Receipt

CreditsBought = tuple[ChainEvent, EscrowContract]  # the event, and the contract that emitted it


class ChainPayments(ObservedPayments[CreditsBought]):
    """Takes the tokens of every chain that this marketplace is on."""

    name: ClassVar[str] = "chain"

    @classmethod
    def is_on(cls) -> bool:
        return bool(chains())

    def receipt_of(self, event: CreditsBought) -> Receipt:
        bought, contract = event
        return Receipt(
            owner_id=credit_owner(bought.arguments["account"]),
            asset_id=contract.asset_id,
            amount=int(bought.arguments["amount"]),
            reference=bought.reference,
            payer=bought.arguments["payer"],
        )
