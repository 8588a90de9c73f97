"""What is kept up on every chain once a minute: stakes that offences took, and the coins that gas is paid with."""

from __future__ import annotations

import logging

from billing.chain import coins, stakes
from billing.chain.config import chains
from billing.chain.errors import ChainError

log = logging.getLogger(__name__)


def maintain_chains() -> int:
    """Slash what is due and warn of what runs out; how many slashes moved. A chain that fails stops no other."""
    moved = 0
    for chain_id in chains():
        try:
            moved += stakes.sweep(chain_id)
            coins.watch(chain_id)
        except ChainError as error:
            log.warning("A chain could not be maintained. chain_id=%s error=%s", chain_id, error)
    return moved
