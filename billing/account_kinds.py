"""The chart of accounts: which kinds there are, and which rules each follows.

    kind                 holds                                            owner   may fall below 0   live sum
    customer_available   prepaid money of a customer                      yes     no                 yes
    job_hold             what is set aside for one job                    yes     no                 yes
    provider_pending     earned, inside the challenge window              yes     no                 yes
    provider_available   earned, can be paid out                          yes     no                 yes
    provider_reserve     kept back against chargebacks                    yes     no                 yes
    provider_stake       collateral that can be slashed                   yes     no                 yes
    payout_clearing      on its way out through a rail                    yes     no                 yes
    customer_promotion   given credit: spent first, never paid out        yes     no                 yes
    wallet_available     what the contract owes a wallet, by its own key  yes     no                 yes
    wallet_held          of a wallet, set aside on chain for one job      yes     no                 yes
    wallet_pending       settled on chain, inside the challenge window    yes     no                 yes
    wallet_stake         a provider's collateral in the contract          yes     no                 yes
    disputed             of one settlement, until the decision            yes     no                 yes
    fee_revenue          the platform's fee                               -       -                  no: entries only
    the rest             mirrors of the outside world, expenses, equity   -       -                  yes

An account without a live sum has no row that every settlement would wait for: its transfers are its balance, and the
sealing task rolls them up.
"""

from __future__ import annotations

from typing import Final

from django.db import models


class AccountKind(models.TextChoices):
    """What an account is for; see the table above."""

    CUSTOMER_AVAILABLE = "customer_available"
    JOB_HOLD = "job_hold"
    PROVIDER_PENDING = "provider_pending"
    PROVIDER_AVAILABLE = "provider_available"
    PROVIDER_RESERVE = "provider_reserve"
    PROVIDER_STAKE = "provider_stake"
    PAYOUT_CLEARING = "payout_clearing"
    CUSTOMER_PROMOTION = "customer_promotion"
    WALLET_AVAILABLE = "wallet_available"
    WALLET_HELD = "wallet_held"
    WALLET_PENDING = "wallet_pending"
    WALLET_STAKE = "wallet_stake"
    FEE_REVENUE = "fee_revenue"
    OPERATOR_CASH = "operator_cash"
    DISPUTED = "disputed"
    STRIPE_BALANCE = "stripe_balance"
    STRIPE_IN_TRANSIT = "stripe_in_transit"
    CHAIN_ESCROW = "chain_escrow"
    CHAIN_HOT_WALLET = "chain_hot_wallet"
    STRIPE_FEE_EXPENSE = "stripe_fee_expense"
    GAS_EXPENSE = "gas_expense"
    CHARGEBACK_LOSS = "chargeback_loss"
    PROMO_EXPENSE = "promo_expense"
    ROUNDING = "rounding"
    SLASH_POOL = "slash_pool"
    INSURANCE_POOL = "insurance_pool"
    LIQUIDITY = "liquidity"


OWNED_KINDS: Final = frozenset(
    {
        AccountKind.CUSTOMER_AVAILABLE,
        AccountKind.JOB_HOLD,
        AccountKind.PROVIDER_PENDING,
        AccountKind.PROVIDER_AVAILABLE,
        AccountKind.PROVIDER_RESERVE,
        AccountKind.PROVIDER_STAKE,
        AccountKind.PAYOUT_CLEARING,
        AccountKind.CUSTOMER_PROMOTION,
        AccountKind.DISPUTED,
        AccountKind.WALLET_AVAILABLE,
        AccountKind.WALLET_HELD,
        AccountKind.WALLET_PENDING,
        AccountKind.WALLET_STAKE,
    }
)
JOB_ACCOUNT_KINDS: Final = frozenset({AccountKind.JOB_HOLD, AccountKind.WALLET_HELD})  # one account a job
NONNEGATIVE_KINDS: Final = OWNED_KINDS
ENTRIES_ONLY_KINDS: Final = frozenset({AccountKind.FEE_REVENUE})
