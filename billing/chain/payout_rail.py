"""Payouts in tokens: a payout is confirmed when a root that anybody can claim it by is open on the chain.

The money leaves the contract when the provider claims it; the indexer books that (payout_clearing -> chain_escrow).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import ClassVar

from django.db.models import Q

from billing.account_kinds import AccountKind
from billing.chain import payout_roots
from billing.chain.contract.registry import contract_of
from billing.chain.errors import ChainError, ContractUnknown
from billing.chain.positions import movements, positions
from billing.chain.wallets import checksummed
from billing.models import ChainEvent, EscrowContract, Payout, PayoutEntry
from billing.rails.errors import RailError
from billing.rails.payouts import EVENT_STORED, Fate, Movement, Outcome, PayoutRail

log = logging.getLogger(__name__)


class ChainPayouts(PayoutRail):
    """Every chain that this marketplace is on."""

    name: ClassVar[str] = "chain"

    def check_destination(self, destination: str) -> str:
        """A wallet's address; not one of a contract that would keep the money, or refuse it for ever."""
        wallet = checksummed(destination.strip())
        if EscrowContract.objects.filter(Q(address__iexact=wallet) | Q(asset__contract__iexact=wallet)).exists():
            raise ValueError(f"{wallet} is a contract of the marketplace or its token, and no wallet of yours")
        return wallet

    def submit(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        """They go into the next root of their token's contract; a repeat finds them there."""
        outcomes: dict[str, Outcome] = {}
        for asset_id in sorted({payout.asset_id for payout in payouts}):
            mine = [payout for payout in payouts if payout.asset_id == asset_id]
            try:
                contract = contract_of(asset_id)
            except ContractUnknown as error:
                outcomes |= {str(payout.pk): Outcome(Fate.FAILED, message=str(error)) for payout in mine}
                continue
            entries = payout_roots.include(contract, mine)
            try:
                payout_roots.publish(contract)
            except ChainError as error:  # they are included: whoever follows the chain publishes when it answers
                log.warning("No root could be planned. asset=%s error=%s", contract.asset_id, error)
            outcomes |= {str(entry.payout_id): _outcome(entry) for entry in entries}
        return outcomes

    def find(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        entries = PayoutEntry.objects.select_related("contract").filter(payout_id__in=[one.pk for one in payouts])
        found = {str(entry.payout_id): _outcome(entry) for entry in entries}
        return {str(payout.pk): Outcome(Fate.ABSENT) for payout in payouts} | found

    def positions(self) -> dict[tuple[AccountKind, int], int]:
        try:
            return positions()
        except ChainError as error:
            raise RailError(str(error)) from error

    def movements(self, since: datetime) -> Iterator[Movement]:
        return movements(since)

    def explain(self, ref: str) -> str:
        chain_id, _, rest = ref.partition(":")
        tx_hash, _, log_index = rest.partition(":")
        if not (chain_id.isdecimal() and log_index.isdecimal()):
            return ""
        events = ChainEvent.objects.filter(processed_at=None, tx_hash=tx_hash, log_index=int(log_index))
        return EVENT_STORED if events.filter(block__chain_id=int(chain_id)).exists() else ""


def _outcome(entry: PayoutEntry) -> Outcome:
    root = payout_roots.active_root(entry)
    if root is None:
        return Outcome(Fate.UNDER_WAY)
    return Outcome(Fate.CONFIRMED, external_id=root.root)
