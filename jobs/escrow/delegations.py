"""Payout wallets speak for receipt keys: signed on the provider's own computer, checked and kept here.

The wallet's key is never on a node. A lease paid in a token names the wallet that had delegated to its node's receipt
key when the lease was made, so that the contract pays that wallet on the receipts of that key. Every delegation
is registered with the contract; a job in escrow mode goes only to nodes where that is final (`is_registered`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from billing.chain import escrow
from billing.chain.errors import SignerMissing
from billing.models import Asset, ReceiptKey
from billing.proofs.escrow import SignedDelegation, is_signed_by_provider
from jobs.errors import DelegationRefused
from jobs.models import ReceiptDelegation
from marketplace.foundation import clock
from marketplace.foundation.errors import NotFound
from marketplace.nodes.models import Node
from provider_agent.protocol import ZERO_ADDRESS, ReceiptDomain

DAYS_MAX: Final = 3660  # that a receipt key may speak for a wallet
TOLD_PER_RUN_MAX: Final = 100
LEASE_MARGIN: Final = timedelta(days=31)  # a lease may last a month, and its receipts are settled after it


def delegate(
    node: Node, asset: Asset, signed: SignedDelegation, *, domain: ReceiptDomain, actor: str
) -> ReceiptDelegation:
    """Store a wallet's delegation to a node's receipt key on one contract; it replaces an earlier one.

    A repeat returns the same row. Raises DelegationRefused.
    """
    said = signed.delegation
    if said.receipt_key.lower() != node.receipt_address.lower():
        raise DelegationRefused(
            why=f"it is for {said.receipt_key}, and the node's receipt key is {node.receipt_address}"
        )
    if not is_signed_by_provider(signed, domain):
        raise DelegationRefused(why=f"it is not signed by {said.provider} for this contract on this chain")
    now = clock.now()
    latest = int((now + timedelta(days=DAYS_MAX)).timestamp())
    if not int(now.timestamp()) < said.not_after <= latest:
        raise DelegationRefused(why=f"it has to last longer than now and at most {DAYS_MAX} days")
    with transaction.atomic():
        Node.objects.select_for_update().get(pk=node.pk)  # of two at once, the second replaces the first
        live = ReceiptDelegation.objects.filter(node=node, asset=asset, revoked_at=None)
        same = live.filter(signature=signed.signature).first()
        if same is not None:
            return same
        live.update(revoked_at=now)
        try:
            with transaction.atomic():
                made = ReceiptDelegation.objects.create(
                    node=node,
                    asset=asset,
                    chain_id=domain.chain_id,
                    contract=domain.verifying_contract.lower(),
                    wallet=said.provider,
                    receipt_address=node.receipt_address,
                    not_after=datetime.fromtimestamp(said.not_after, UTC),
                    nonce=said.nonce,
                    signature=signed.signature,
                    created_by=actor[:120],
                )
        except IntegrityError as error:
            raise DelegationRefused(why=f"the wallet used the nonce {said.nonce} before") from error
        _register(made)
        return made


def revoke(delegation_id: UUID, *, organisation_id: UUID) -> ReceiptDelegation:
    """End a delegation for leases to come; those that run keep the wallet that they were made with."""
    with transaction.atomic():
        rows = ReceiptDelegation.objects.select_for_update(of=("self",)).select_related("node", "asset")
        found = rows.filter(pk=delegation_id, node__provider__organisation=organisation_id).first()
        if found is None:
            raise NotFound()
        if found.revoked_at is None:
            found.revoked_at = clock.now()
            found.save(update_fields=["revoked_at"])
        return found


def register_due() -> int:
    """Register the delegations that the contracts do not know, each once; how many."""
    untold = ReceiptDelegation.objects.filter(
        revoked_at=None, told_at=None, not_after__gt=clock.now(), contract__iexact=F("asset__escrow__address")
    )
    return sum(_register(row) for row in untold.order_by("created_at")[:TOLD_PER_RUN_MAX])


def wallet_of(node: Node, asset: Asset) -> str:
    """The wallet that a new lease of this node is paid to on chain; the zero address where none has delegated."""
    found = ReceiptDelegation.objects.filter(
        node=node,
        asset=asset,
        revoked_at=None,
        receipt_address__iexact=node.receipt_address,
        not_after__gt=clock.now() + LEASE_MARGIN,
    ).first()
    return found.wallet if found else ZERO_ADDRESS


def nodes_of(asset: Asset, wallets: Collection[str]) -> frozenset[UUID]:
    """The nodes whose receipts the contract finally takes for one of these wallets."""
    wanted = {wallet.lower() for wallet in wallets}
    rows = _registered().filter(asset=asset).values_list("node_id", "wallet")
    return frozenset(node_id for node_id, wallet in rows if wallet.lower() in wanted)


def wallets_of(asset: Asset, node_ids: Collection[UUID]) -> dict[UUID, str]:
    """By node, the wallet for which the contract finally takes its receipts."""
    rows = _registered().filter(asset=asset, node__in=node_ids).values_list("node_id", "wallet")
    return dict(rows)


def is_registered(node: Node, asset: Asset) -> bool:
    """Whether the contract finally takes the node's receipts for the wallet of its delegation."""
    return _registered().filter(node=node, asset=asset).exists()


def wallets_by_node() -> dict[UUID, frozenset[str]]:
    """Of each node the codes of the tokens in which a customer's wallet can pay it by the contract."""
    found: defaultdict[UUID, set[str]] = defaultdict(set)
    for node_id, code in _registered().values_list("node_id", "asset__code"):
        found[node_id].add(code)
    return {node_id: frozenset(codes) for node_id, codes in found.items()}


def _register(row: ReceiptDelegation) -> bool:
    """Plan the transaction; where this marketplace has no key to sign it with, a sweep tries again."""
    try:
        escrow.register_receipt_key(row.asset_id, row.as_signed())
    except SignerMissing:
        return False
    row.told_at = clock.now()
    row.save(update_fields=["told_at"])
    return True


def _registered() -> QuerySet[ReceiptDelegation]:
    lasting = clock.now() + LEASE_MARGIN
    known = ReceiptKey.objects.filter(
        contract=OuterRef("asset"),
        provider__iexact=OuterRef("wallet"),
        receipt_key__iexact=OuterRef("receipt_address"),
        not_after__gt=int(lasting.timestamp()),
    )
    live = ReceiptDelegation.objects.filter(
        Exists(known), revoked_at=None, not_after__gt=lasting, receipt_address__iexact=F("node__receipt_address")
    )
    return live
