"""One look at every chain: read it, book it, move on what waits for it. A chain that fails stops no other."""

from __future__ import annotations

import logging

from billing.chain import development, escrow, indexer, roots, transactions
from billing.chain.config import chains
from billing.chain.errors import ChainError
from billing.models import EscrowContract
from billing.payouts import submission
from billing.rails.chain_rail import ChainRail

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
        if roots.follow(contract):  # one has opened: its payouts are told at once, before their claims come
            submission.follow_at_once(ChainRail(), contract.asset_id)
        roots.publish(contract)
    escrow.sweep(chain_id)
    if transactions.dispatch(chain_id):
        booked += indexer.follow(chain_id)
    return booked
