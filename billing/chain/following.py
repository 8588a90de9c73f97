"""One look at every chain: read it, book it, move on what waits for it. A chain that fails stops no other."""

from __future__ import annotations

import logging
from uuid import UUID

from billing.chain import development, escrow, indexer, roots, transactions
from billing.chain.config import chains
from billing.chain.errors import ChainError
from billing.models import EscrowContract, Payout
from billing.payouts.outcomes import apply_outcome
from billing.rails.chain_rail import ChainRail
from billing.states import PayoutState

log = logging.getLogger(__name__)


def follow_chains() -> int:
    """Index, book, publish roots, sweep, send; how many events were booked on all chains."""
    booked = 0
    for chain_id in chains():
        try:
            booked += follow_chain(chain_id)
        except ChainError as error:
            log.warning("A chain could not be followed. chain_id=%s error=%s", chain_id, error)
    return booked


def follow_chain(chain_id: int) -> int:
    """The same for one chain; raises ChainError."""
    development.ensure(chain_id)
    booked = indexer.follow(chain_id)
    for contract in EscrowContract.objects.select_related("asset").filter(chain_id=chain_id):
        if roots.follow(contract):
            _confirm_payouts(contract)
        roots.publish(contract)
    escrow.sweep(chain_id)
    if transactions.dispatch(chain_id):
        booked += indexer.follow(chain_id)
    return booked


def _confirm_payouts(contract: EscrowContract) -> None:
    """A root has opened (or failed): its payouts are told at once, before their claims come."""
    waiting = list(Payout.objects.filter(rail=ChainRail.name, asset_id=contract.asset_id, state=PayoutState.SUBMITTED))
    for payout_id, outcome in ChainRail().find(waiting).items():
        apply_outcome(UUID(payout_id), outcome)
