"""Payouts in tokens: a payout is confirmed when a root that anybody can claim it by is open on the chain.

The money leaves the contract when the provider claims it; the indexer books that (payout_clearing -> chain_escrow).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import ClassVar

from billing.chain import roots
from billing.chain.errors import ChainError, ContractUnknown
from billing.chain.positions import movements, positions
from billing.chain.registry import contract_of
from billing.chain.wallets import checksummed
from billing.kinds import AccountKind
from billing.models import Payout, PayoutEntry
from billing.rails.base import Fate, Movement, Outcome, Rail, RailError


class ChainRail(Rail):
    """Every chain that this marketplace is on."""

    name: ClassVar[str] = "chain"

    def check_destination(self, destination: str) -> str:
        return checksummed(destination.strip())

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
            entries = roots.include(contract, mine)
            roots.publish(contract)
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


def _outcome(entry: PayoutEntry) -> Outcome:
    root = roots.active_root(entry)
    if root is None:
        return Outcome(Fate.UNDER_WAY)
    return Outcome(Fate.CONFIRMED, external_id=root.root)
