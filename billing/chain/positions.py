"""What our contracts hold right now, and how it came to change: what the books are held against."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from billing.account_kinds import AccountKind
from billing.books.escrow_flows import INWARD, OUTWARD
from billing.chain.config import chains
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.models import ChainBlock, ChainEvent, EscrowContract
from billing.rails.payouts import Movement

MOVEMENTS_PER_FETCH: Final = 1_000


def positions() -> dict[tuple[AccountKind, int], int]:
    """By mirror and asset, at the block up to which events are stored: later ones are not in the books yet.

    What was sent to the contract without calling it belongs to nobody, so that a stranger's coin is no difference:
    what counts is what the contract owes, or what it has where that is less. The wallets that pay for gas are left out:
    what goes there comes without an event, and a stranger's coin there would look like a fault. Raises ChainError.
    """
    found: dict[tuple[AccountKind, int], int] = {}
    abi = builds.load(builds.ESCROW).abi
    for contract in EscrowContract.objects.select_related("asset").filter(chain_id__in=chains()):
        client = client_of(contract.chain_id)
        at = max(contract.scanned_block, contract.deployed_block)
        held = client.read(contract.asset.contract, builds.ERC20_ABI, "balanceOf", contract.address, at=at)
        owed = client.read(contract.address, abi, "totalLiabilities", at=at)
        found[AccountKind.CHAIN_ESCROW, contract.asset_id] = min(int(held), int(owed))
    return found


def movements(since: datetime) -> Iterator[Movement]:
    """Every change since then, oldest first: the final events that move tokens in or out."""
    contracts = {(one.chain_id, one.address): one.asset_id for one in EscrowContract.objects.all()}
    events = (
        ChainEvent.objects.select_related("block")
        .filter(block__state=ChainBlock.State.FINAL, block__mined_at__gte=since, name__in=INWARD | OUTWARD)
        .order_by("block__mined_at", "pk")
    )
    for event in events.iterator(MOVEMENTS_PER_FETCH):
        asset_id = contracts.get((event.block.chain_id, event.contract))
        if asset_id is not None:
            amount = int(event.arguments["amount"]) * (1 if event.name in INWARD else -1)
            yield Movement(event.reference, AccountKind.CHAIN_ESCROW, asset_id, amount, event.block.mined_at)
