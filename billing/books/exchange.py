"""One asset for another at a quoted price, through the platform's liquidity of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.errors import AccountFrozen, AmountInvalid, InsufficientFunds, QuoteConflict
from billing.fields import is_amount
from billing.models import Transfer
from billing.transfer_codes import TransferCode

QUOTE_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True)
class Quote:
    """So many base units of `bought_asset_id` (numerator) for so many of `sold_asset_id` (denominator), once.

    `step`: the least that is handed out of what is bought, such as a cent; what is below it is the platform's rounding.
    """

    id: str
    sold_asset_id: int
    bought_asset_id: int
    numerator: int
    denominator: int
    step: int = 1

    def value_of(self, sold: int) -> int:
        """What `sold` is worth, rounded down to whole base units: no exchange creates value."""
        return sold * self.numerator // self.denominator


def exchange(*, owner_id: UUID, sold: int, quote: Quote) -> list[Transfer]:
    """Give `sold` for its value at the quote, both or neither; a quote is used once, and a repeat returns the first.

    Raises InsufficientFunds, AmountInvalid where it is worth less than one step, QuoteConflict when the quote was used
    for another exchange.
    """
    value = _value(sold, quote)
    dust = value % quote.step
    kinds = AccountKind
    payer, into, out_of, payee, rounding = open_accounts(
        [
            AccountName(kinds.CUSTOMER_AVAILABLE, owner_id, asset_id=quote.sold_asset_id),
            AccountName(kinds.LIQUIDITY, asset_id=quote.sold_asset_id),
            AccountName(kinds.LIQUIDITY, asset_id=quote.bought_asset_id),
            AccountName(kinds.CUSTOMER_AVAILABLE, owner_id, asset_id=quote.bought_asset_id),
            AccountName(kinds.ROUNDING, asset_id=quote.bought_asset_id),
        ]
    )
    parts = [(payer, into, sold), (out_of, payee, value - dust), (out_of, rounding, dust)]
    group = [
        ledger.NewTransfer(debit, credit, amount, TransferCode.EXCHANGE, external_ref=quote.id)
        for debit, credit, amount in parts
        if amount
    ]
    try:
        with transaction.atomic():
            return ledger.post(group, savepoint=False)
    except (IntegrityError, InsufficientFunds, AccountFrozen) as error:
        # The database lets a quote be used once: then this is a repeat, or another exchange. What a repeat would sell
        # may be gone since; that is no reason to deny the first.
        found = _first(group, quote)
        if found is None:
            if isinstance(error, IntegrityError):
                raise QuoteConflict(quote=quote.id) from error
            raise
        return found


def _value(sold: int, quote: Quote) -> int:
    numbers = (sold, quote.numerator, quote.denominator, quote.step)
    if not all(map(is_amount, numbers)):
        raise AmountInvalid(value=str(sold)[:QUOTE_CHARACTERS_MAX])
    value = quote.value_of(sold)
    if not is_amount(value, least=quote.step) or quote.sold_asset_id == quote.bought_asset_id:
        raise AmountInvalid(value=str(sold)[:QUOTE_CHARACTERS_MAX])
    if not quote.id.strip() or len(quote.id) > QUOTE_CHARACTERS_MAX:
        raise QuoteConflict("An exchange needs the id of its quote.")
    return value


def _first(group: list[ledger.NewTransfer], quote: Quote) -> list[Transfer] | None:
    """The exchange that this quote was used for; raises QuoteConflict where it was another one."""
    found = list(Transfer.objects.filter(code=TransferCode.EXCHANGE, external_ref=quote.id).order_by("seq"))
    if found and [(row.debit_id, row.credit_id, row.amount) for row in found] != [
        (new.debit.pk, new.credit.pk, new.amount) for new in group
    ]:
        raise QuoteConflict(quote=quote.id)
    return found or None
