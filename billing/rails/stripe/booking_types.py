"""Who books each type of change of our balance at Stripe: a table of every type that Stripe names.

OURS       the payment, refund, dispute, transfer or reversal that it belongs to; if none of ours, an operator
OPERATOR   the operator's own money: its bank, its loans, its cards, and what it buys of Stripe
COST       what Stripe charges
KEPT       still ours, and kept by Stripe beside the balance until it is released
LOSS       what Stripe took from us because a provider's account there was below zero
PERSON     nothing books it by itself: `souk ledger correct` does, by two people

A type that is not in the table is a PERSON's: Stripe adds types without a new version of its API.
Source: https://docs.stripe.com/reports/balance-transaction-types
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Booker(StrEnum):
    """Who books; see the top of this file."""

    OURS = "ours"
    OPERATOR = "operator"
    COST = "cost"
    KEPT = "kept"
    LOSS = "loss"
    PERSON = "person"


BOOKERS: Final[Mapping[str, Booker]] = {
    # Payments by customers and what becomes of them.
    "charge": Booker.OURS,
    "payment": Booker.OURS,
    "refund": Booker.OURS,
    "payment_refund": Booker.OURS,
    "refund_failure": Booker.OURS,
    "adjustment": Booker.OURS,
    "payment_failure_refund": Booker.PERSON,
    "payment_reversal": Booker.PERSON,
    "payment_unreconciled": Booker.PERSON,
    # Transfers to providers.
    "transfer": Booker.OURS,
    "transfer_refund": Booker.OURS,
    "transfer_cancel": Booker.OURS,
    "transfer_failure": Booker.OURS,
    "connect_collection_transfer": Booker.LOSS,
    "application_fee": Booker.OPERATOR,
    "application_fee_refund": Booker.OPERATOR,
    # The operator's own bank, and the balances that it has at Stripe beside this one.
    "payout": Booker.OPERATOR,
    "payout_cancel": Booker.OPERATOR,
    "payout_failure": Booker.OPERATOR,
    "topup": Booker.OPERATOR,
    "topup_reversal": Booker.OPERATOR,
    "inbound_transfer": Booker.OPERATOR,
    "inbound_transfer_reversal": Booker.OPERATOR,
    "obligation_outbound": Booker.OPERATOR,
    "obligation_reversal_inbound": Booker.OPERATOR,
    "advance": Booker.OPERATOR,
    "advance_funding": Booker.OPERATOR,
    "anticipation_repayment": Booker.OPERATOR,
    "issuing_authorization_hold": Booker.OPERATOR,
    "issuing_authorization_release": Booker.OPERATOR,
    "issuing_dispute": Booker.OPERATOR,
    "issuing_dispute_provisional_credit": Booker.OPERATOR,
    "issuing_dispute_provisional_credit_reversal": Booker.OPERATOR,
    "issuing_transaction": Booker.OPERATOR,
    "stripe_balance_payment_debit": Booker.OPERATOR,
    "stripe_balance_payment_debit_reversal": Booker.OPERATOR,
    "climate_order_purchase": Booker.OPERATOR,
    "climate_order_refund": Booker.OPERATOR,
    "contribution": Booker.OPERATOR,
    "tax_fund": Booker.OPERATOR,
    # Stripe's price.
    "stripe_fee": Booker.COST,
    "stripe_fx_fee": Booker.COST,
    "tax_fee": Booker.COST,
    "network_cost": Booker.COST,
    "fee_credit_funding": Booker.COST,
    # Reserves.
    "reserve_transaction": Booker.KEPT,
    "reserved_funds": Booker.KEPT,
    "reserve_hold": Booker.KEPT,
    "reserve_release": Booker.KEPT,
    "payment_network_reserve_hold": Booker.KEPT,
    "payment_network_reserve_release": Booker.KEPT,
    "payout_minimum_balance_hold": Booker.KEPT,
    "payout_minimum_balance_release": Booker.KEPT,
}


def booker_of(booking_type: str) -> Booker:
    """Who books a change of this type."""
    return BOOKERS.get(booking_type, Booker.PERSON)
