"""Providers that earned tokens as credit, and payouts of it."""

from __future__ import annotations

from uuid import UUID

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.chain.payout_rail import ChainPayouts
from billing.models import Payout
from billing.rails.payouts import Fate
from billing.states import PayoutState
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation.states import advance
from tests.integration.billing.chain.town import Town


def earn(town: Town, alice: UUID, bob: UUID, amount: int) -> None:
    """Bob earned some of Alice's credits."""
    customer, provider = open_accounts(
        [
            AccountName(AccountKind.CUSTOMER_AVAILABLE, alice, asset_id=town.asset_id),
            AccountName(AccountKind.PROVIDER_AVAILABLE, bob, asset_id=town.asset_id),
        ]
    )
    ledger.post([ledger.NewTransfer(customer, provider, amount, TransferCode.PROVIDER_PAY)])


def reserve(town: Town, bob: UUID, wallet: str, amount: int) -> Payout:
    """As the payout's own verbs do: a pending transfer exists, and the rail will be called."""
    available, clearing = open_accounts(
        [
            AccountName(AccountKind.PROVIDER_AVAILABLE, bob, asset_id=town.asset_id),
            AccountName(AccountKind.PAYOUT_CLEARING, bob, asset_id=town.asset_id),
        ]
    )
    new = ledger.NewTransfer(available, clearing, amount, TransferCode.PAYOUT, mode=TransferMode.PENDING)
    [pending] = ledger.post([new])
    payout = Payout.objects.create(
        provider_id=bob,
        rail="chain",
        asset_id=town.asset_id,
        amount=amount,
        destination=wallet,
        pending_transfer=pending,
    )
    return advance(payout, PayoutState.RESERVED)


def send(payout: Payout) -> Fate:
    """Into the next root; from here on whoever follows the chain confirms the payout when its root is open."""
    return ChainPayouts().submit([advance(payout, PayoutState.SUBMITTED)])[str(payout.pk)].fate
