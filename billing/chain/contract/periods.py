"""A contract's own constants: its periods and its fee, read from the chain once and kept."""

from __future__ import annotations

from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.models import ContractTerms, EscrowContract

_VIEWS = {
    "challenge_seconds": "challengeSeconds",
    "grace_seconds": "graceSeconds",
    "dispute_seconds": "disputeSeconds",
    "close_seconds": "closeSeconds",
    "fee_bps": "feeBps",
}


def read_terms(chain_id: int) -> int:
    """Read those of every contract on this chain that we do not know yet; how many. Raises ChainError."""
    unread = list(EscrowContract.objects.filter(chain_id=chain_id, periods=None))
    if unread:
        client, abi = client_of(chain_id), builds.load(builds.ESCROW).abi
        at = client.head()
        for contract in unread:
            terms = {name: int(client.read(contract.address, abi, view, at=at)) for name, view in _VIEWS.items()}
            ContractTerms.objects.get_or_create(contract=contract, defaults=terms)
    return len(unread)


def terms_of(asset_id: int) -> ContractTerms | None:
    """Those of the contract that holds this asset; None until they were read."""
    return ContractTerms.objects.select_related("contract__asset").filter(contract=asset_id).first()
