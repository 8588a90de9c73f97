"""How our transactions end: final, reverted, or let go; what each end costs, and who is notified."""

from __future__ import annotations

from django.db import transaction

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.chain.contract import registry
from billing.chain.reading.client import Receipt
from billing.models import ChainTransaction
from billing.notices import alerts
from billing.states.chain import TransactionState as State
from billing.transfer_codes import TransferCode
from marketplace.foundation.states import advance


def close(one: ChainTransaction, receipt: Receipt) -> ChainTransaction:
    """It is final: book its gas, and let go of the others with its nonce; once."""
    with transaction.atomic():
        state = State.FINAL if receipt.is_success else State.REVERTED
        advance(one, state, gas_cost=receipt.cost, data={"gas_used": receipt.gas_used})
        siblings = ChainTransaction.objects.filter(signer=one.signer, chain_id=one.chain_id, nonce=one.nonce)
        for other in siblings.exclude(pk=one.pk):
            if other.state == State.MINED:  # its block is gone, or ours would not be final
                advance(other, State.REORGED, reason="block_gone", block_number=None, block_hash="")
            advance(other, State.REPLACED, reason="nonce_final")
        _book_gas(one, receipt.cost)
        if state == State.REVERTED:
            alert_failed(one, "was mined and reverted; it is not sent again by itself")
        for key in (f"chain:stuck:{one.signer}:{one.nonce}", f"chain:receipt:{one.pk}"):
            alerts.close(key)
    return one


def let_go(one: ChainTransaction) -> ChainTransaction:
    """A foreign transaction has its nonce, finally: this one never makes its call; the operators get an alert."""
    with transaction.atomic():
        alerts.raise_once(
            f"chain:taken:{one.chain_id}:{one.signer}:{one.nonce}",
            kind="chain_nonce",
            severity=alerts.Severity.CRITICAL,
            subject=one.signer,
            message=f"The nonce {one.nonce} of {one.signer} was used by a transaction that is not ours: the key is used"
            f" elsewhere, or was stolen. Our {one.purpose} was not made.",
        )
        return advance(one, State.REPLACED, reason="nonce_taken")


def outcome_of(one: ChainTransaction) -> ChainTransaction:
    """The transaction that stands for this one: itself, or the replacement that was mined instead."""
    if one.state != State.REPLACED:
        return one
    won = ChainTransaction.objects.filter(
        signer=one.signer, chain_id=one.chain_id, nonce=one.nonce, state__in=[State.FINAL, State.REVERTED]
    ).first()
    return won or one


def has_failed(one: ChainTransaction) -> bool:
    """Whether its call will never be made: refused, reverted, or its nonce went to a foreign transaction."""
    return outcome_of(one).state in {State.REVERTED, State.REFUSED, State.REPLACED}


def book_coins(chain_id: int, amount: int, *, ref: str) -> None:
    """The operator put coins for gas into a signer's wallet."""
    if amount <= 0:
        return
    asset_id = registry.register_coin(chain_id).pk
    hot_wallet, cash = open_accounts(
        [AccountName(kind, asset_id=asset_id) for kind in (AccountKind.CHAIN_HOT_WALLET, AccountKind.OPERATOR_CASH)]
    )
    ledger.post([ledger.NewTransfer(hot_wallet, cash, amount, TransferCode.DEPOSIT, external_ref=ref)])


def _book_gas(one: ChainTransaction, cost: int) -> None:
    if cost <= 0:
        return
    asset_id = registry.register_coin(one.chain_id).pk
    expense, hot_wallet = open_accounts(
        [AccountName(kind, asset_id=asset_id) for kind in (AccountKind.GAS_EXPENSE, AccountKind.CHAIN_HOT_WALLET)]
    )
    ledger.post([ledger.NewTransfer(expense, hot_wallet, cost, TransferCode.GAS, external_ref=one.hash)])


def alert_failed(one: ChainTransaction, what: str) -> None:
    alerts.raise_once(
        f"chain:failed:{one.pk}",
        kind="chain_transaction",
        severity=alerts.Severity.CRITICAL,
        subject=one.pk,
        message=f"{one.purpose} {what}. Transaction {one.hash or one.pk} of {one.signer}.",
    )
