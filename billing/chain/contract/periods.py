"""A contract's own constants: its periods and its fee, read from the chain once and kept."""

from __future__ import annotations

from django.db.models import Q

from billing.chain.errors import ContractRefused
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
    """Read those of every contract on this chain that we do not know yet, or not for sure; how many.

    A contract of another build takes other calls for holds than ours: it keeps its credits, payouts and stakes, and no
    wallet is asked to sign for it. Raises ContractRefused for it when all others were read, and what the endpoints do.
    """
    # A process of the version before wrote those of any build, and no time to close: what says 0 is looked at again.
    unsure = Q(periods=None) | Q(periods__close_seconds=0)
    unread = list(EscrowContract.objects.filter(unsure, chain_id=chain_id))
    if not unread:
        return 0
    client, build, others = client_of(chain_id), builds.load(builds.ESCROW), []
    at = client.head()
    for contract in unread:
        if not build.is_deployed_as(client.code(contract.address)):
            ContractTerms.objects.filter(contract=contract).delete()
            others.append(contract.address)
            continue
        terms = {name: int(client.read(contract.address, build.abi, view, at=at)) for name, view in _VIEWS.items()}
        ContractTerms.objects.update_or_create(contract=contract, defaults=terms)
    if others:
        why = "its code is not that of this version, so no job is paid from wallets there (docs/operator-money.md)"
        raise ContractRefused(address=", ".join(others), why=why)
    return len(unread)


def terms_of(asset_id: int) -> ContractTerms | None:
    """Those of the contract that holds this asset; None until they were read."""
    return ContractTerms.objects.select_related("contract__asset").filter(contract=asset_id).first()
