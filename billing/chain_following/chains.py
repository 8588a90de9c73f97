"""One pass over every chain: read it, book it, continue what waits for it. A chain that fails stops no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from billing.chain import escrow, payout_roots
from billing.chain.config import chains
from billing.chain.contract import periods
from billing.chain.devchain import development
from billing.chain.errors import ChainError
from billing.chain.events import indexer
from billing.chain.payout_rail import ChainPayouts
from billing.chain.transactions import planning
from billing.models import EscrowContract
from billing.notices import alerts
from billing.payouts import submission

log = logging.getLogger(__name__)


def follow_chains() -> int:
    """Index, book, publish roots, sweep, send; how many events were booked on all chains."""
    booked = 0
    for chain_id in chains():
        try:
            booked += follow_chain(chain_id)
        except ChainError as error:
            log.warning("A chain could not be followed. chain_id=%s error=%s", chain_id, error)
        except Exception:
            log.exception("A chain could not be followed. chain_id=%s", chain_id)
    return booked


def follow_chain(chain_id: int) -> int:
    """The same for one chain; a step that fails stops no other. Raises ChainError, having alerted the operators."""
    development.ensure(chain_id)
    booked = indexer.follow(chain_id)
    failures: list[ChainError] = []

    def attempt(step: Callable[[], int]) -> int:
        try:
            return step()
        except ChainError as error:
            failures.append(error)
            return 0

    for contract in EscrowContract.objects.select_related("asset").filter(chain_id=chain_id):
        attempt(partial(_advance_roots, contract))
    attempt(partial(periods.read_terms, chain_id))
    attempt(partial(escrow.sweep, chain_id))
    if attempt(partial(planning.dispatch, chain_id)):  # what was sent may be mined already
        booked += attempt(partial(indexer.follow, chain_id))
    _alert_failures(chain_id, failures)
    return booked


def _advance_roots(contract: EscrowContract) -> int:
    moved = payout_roots.follow(contract)
    if moved:  # one has opened: its payouts are confirmed at once, before their claims come
        submission.follow_at_once(ChainPayouts(), contract.asset_id)
    payout_roots.publish(contract)
    return moved


def _alert_failures(chain_id: int, failures: list[ChainError]) -> None:
    """One alert a chain while anything about it fails; raises the first failure."""
    key = f"chain:tend:{chain_id}"
    if not failures:
        alerts.close(key)
        return
    message = "; ".join(dict.fromkeys(map(str, failures)))
    alerts.raise_once(key, kind="chain_tending", subject=chain_id, message=message)
    raise failures[0]
