"""Why money moved, and how: the codes and modes of the ledger's transfers."""

from __future__ import annotations

from django.db import models


class TransferCode(models.TextChoices):
    """Why money moved. The strings are public: API, bills and the admin show them."""

    DEPOSIT = "deposit"
    DEPOSIT_COST = "deposit_cost"
    DEPOSIT_REFUND = "deposit_refund"
    HOLD = "hold"
    HOLD_EXTENSION = "hold_extension"
    HOLD_RELEASE = "hold_release"
    PROVIDER_PAY = "provider_pay"
    PLATFORM_FEE = "platform_fee"
    HOLD_REST = "hold_rest"
    CHALLENGE_PASSED = "challenge_passed"
    RESERVE_KEPT = "reserve_kept"
    RESERVE_RELEASED = "reserve_released"
    PAYOUT = "payout"
    PAYOUT_COST = "payout_cost"
    PAYOUT_RETURNED = "payout_returned"
    RAIL_MOVE = "rail_move"
    GAS = "gas"
    CHARGEBACK = "chargeback"
    CHARGEBACK_WON = "chargeback_won"
    CHARGEBACK_RECOVERY = "chargeback_recovery"
    DISPUTE_FROZEN = "dispute_frozen"
    DISPUTE_TO_PROVIDER = "dispute_to_provider"
    DISPUTE_TO_CUSTOMER = "dispute_to_customer"
    FAULT_REFUND = "fault_refund"
    STAKE = "stake"
    UNSTAKE = "unstake"
    SLASH = "slash"
    COMPENSATION = "compensation"
    PROMOTION = "promotion"
    PROMOTION_EXPIRED = "promotion_expired"
    WALLET_DEPOSIT = "wallet_deposit"
    WALLET_WITHDRAWAL = "wallet_withdrawal"
    WALLET_HOLD = "wallet_hold"
    WALLET_SETTLED = "wallet_settled"
    WALLET_RELEASED = "wallet_released"
    WALLET_REFUND = "wallet_refund"
    USAGE_PAY = "usage_pay"
    STORAGE = "storage"
    EXCHANGE = "exchange"
    CORRECTION = "correction"


class TransferMode(models.TextChoices):
    """single: moves at once. pending: reserves, until one post (up to its amount) or void resolves it."""

    SINGLE = "single"
    PENDING = "pending"
    POST = "post"
    VOID = "void"
