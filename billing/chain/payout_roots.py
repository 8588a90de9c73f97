"""Payouts in tokens: every root promises each wallet all that it was ever owed, and providers claim by it on their own.

    include   a payout becomes an entry: the wallet's running total grows
    publish   a root over every total up to the newest entry is planned, one at a time
    (chain)   RootProposed is final: proposed, and after the contract's delay, in which it can be vetoed, active
    prove     what a provider needs to claim without us

One transaction pays any number of providers. A root that failed is not replaced by itself: a person looks first.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Sum

from billing.chain import merkle
from billing.chain.errors import ProofNotReady
from billing.chain.keys import Role
from billing.chain.reading import builds
from billing.chain.reading.client import client_of
from billing.chain.transactions import planning
from billing.models import EscrowContract, Payout, PayoutEntry, PayoutRoot
from billing.notices import alerts
from billing.proofs.merkle import MerkleTree
from billing.states.chain import RootState
from marketplace.foundation.ids import new_id
from marketplace.foundation.states import advance, record_birth

TREES_KEPT: Final = 8
ENTRIES_PER_ROOT_MAX: Final = 10_000  # new ones; the totals of all wallets are in every root


@dataclass(frozen=True)
class ClaimProof:
    """What `claim` takes, and where to send it."""

    chain_id: int
    contract: str
    token: str
    wallet: str
    cumulative: int
    root: str
    proof: list[str]

    @property
    def call_data(self) -> str:
        """The data of a transaction to the contract; anybody may send it, the money goes to the wallet."""
        return builds.encode(builds.ESCROW, "claim", [self.wallet, self.cumulative, self.proof])


def include(contract: EscrowContract, payouts: Sequence[Payout]) -> list[PayoutEntry]:
    """Add payouts to what the next root promises, each once; `destination` is the wallet."""
    with transaction.atomic():
        EscrowContract.objects.select_for_update().get(pk=contract.pk)  # running totals grow one after the other
        known = {one.payout_id: one for one in PayoutEntry.objects.filter(payout_id__in=[one.pk for one in payouts])}
        entries = []
        for payout in payouts:
            entry = known.get(payout.pk)
            if entry is None:
                entry = PayoutEntry.objects.create(
                    contract=contract,
                    payout_id=payout.pk,
                    provider_id=payout.provider_id,
                    wallet=payout.destination,
                    amount=payout.amount,
                    cumulative=_promised(contract, payout.destination) + payout.amount,
                )
            entries.append(entry)
        return entries


def publish(contract: EscrowContract) -> PayoutRoot | None:
    """Plan a root over the entries, if there are new ones and no root is under way; raises ChainError.

    It promises no more than the contract takes in one day: what is left has the next root, on the next day.
    """
    if _newest(contract) is None or _is_under_way(contract):
        return None
    client = client_of(contract.chain_id)
    cap = int(client.read(contract.address, builds.load(builds.ESCROW).abi, "rootDailyCap", at=client.head()))
    with transaction.atomic():
        EscrowContract.objects.select_for_update().get(pk=contract.pk)
        last = PayoutRoot.objects.filter(contract=contract).order_by("-created_at").first()
        newest = _newest(contract, cap)
        if newest is None or _is_under_way(contract) or (last is not None and not _may_follow(last, newest)):
            return None
        tree = _tree(contract, newest.pk)
        total = PayoutEntry.objects.filter(contract=contract, pk__lte=newest.pk).aggregate(sum=Sum("amount"))["sum"]
        root, root_id = "0x" + tree.root.hex(), new_id()
        planned = planning.plan(
            chain_id=contract.chain_id,
            role=Role.PUBLISHER,
            purpose="proposeRoot",
            to=contract.address,
            data=builds.encode(builds.ESCROW, "proposeRoot", [root, int(total)]),
            business_key=f"root:{root_id}",
        )
        row = PayoutRoot.objects.create(
            id=root_id, contract=contract, last_entry=newest, root=root, total=int(total), transaction=planned
        )
        record_birth(row, data={"root": root, "total": str(total)})
        return row


def follow(contract: EscrowContract) -> int:
    """Move roots on that the chain has decided; how many moved. Raises ChainError."""
    moved = 0
    for row in PayoutRoot.objects.filter(contract=contract, state=RootState.PLANNED).select_related("transaction"):
        if row.transaction is not None and planning.has_failed(row.transaction):
            advance(row, RootState.FAILED, reason="transaction_failed")
            moved += 1
    for row in PayoutRoot.objects.filter(contract=contract, state=RootState.PROPOSED):
        moved += _activate(contract, row)
    return moved


def retry(contract: EscrowContract) -> PayoutRoot | None:
    """The operator has looked at a failed or vetoed root: let the next one be published."""
    with transaction.atomic():
        last = PayoutRoot.objects.select_for_update().filter(contract=contract).order_by("-created_at").first()
        if last is not None and last.state in {RootState.FAILED, RootState.VETOED}:
            PayoutRoot.objects.filter(pk=last.pk).update(may_follow=True)
            alerts.close(f"chain:root_stopped:{contract.pk}")
    return publish(contract)


def prove(payout_id: UUID) -> ClaimProof:
    """What the payout's wallet needs to claim; raises ProofNotReady."""
    entry = PayoutEntry.objects.select_related("contract__asset").filter(payout_id=payout_id).first()
    active = entry and active_root(entry)
    if entry is None or active is None:
        raise ProofNotReady(payout_id=str(payout_id))
    contract = entry.contract
    # Only the newest open root counts in the contract.
    newest = PayoutRoot.objects.filter(contract=contract, state=RootState.ACTIVE).latest("created_at")
    tree = _tree(contract, newest.last_entry_id)
    cumulative = _promised(contract, entry.wallet, up_to=newest.last_entry_id)
    leaf = merkle.leaf(wallet=entry.wallet, cumulative=cumulative, **_place(contract))
    return ClaimProof(
        chain_id=contract.chain_id,
        contract=contract.address,
        token=contract.asset.contract,
        wallet=entry.wallet,
        cumulative=cumulative,
        root=newest.root,
        proof=["0x" + node.hex() for node in tree.proof(leaf)],
    )


def active_root(entry: PayoutEntry) -> PayoutRoot | None:
    """The first open root that promises this entry."""
    roots = PayoutRoot.objects.filter(contract=entry.contract, state=RootState.ACTIVE, last_entry_id__gte=entry.pk)
    return roots.order_by("created_at").first()


def _is_under_way(contract: EscrowContract) -> bool:
    return PayoutRoot.objects.filter(contract=contract, state__in=[RootState.PLANNED, RootState.PROPOSED]).exists()


def _newest(contract: EscrowContract, cap: int | None = None) -> PayoutEntry | None:
    """The last entry that the next root promises: all that are not open yet, or as many as fit below the cap, or one.

    One payout above the cap goes out alone: the contract refuses it, and the operator gets an alert.
    """
    entries = PayoutEntry.objects.filter(contract=contract).order_by("pk")
    opened = PayoutRoot.objects.filter(contract=contract, state=RootState.ACTIVE).order_by("-created_at").first()
    if opened is not None:
        entries = entries.filter(pk__gt=opened.last_entry_id)
    if cap is None:
        return entries.first()
    newest, total = None, 0
    for entry in entries[:ENTRIES_PER_ROOT_MAX]:
        total += entry.amount
        if newest is not None and total > cap:
            break
        newest = entry
    return newest


def _may_follow(last: PayoutRoot, newest: PayoutEntry) -> bool:
    if last.state == RootState.ACTIVE:
        return newest.pk > last.last_entry_id
    if last.state in {RootState.FAILED, RootState.VETOED} and not last.may_follow:
        alerts.raise_once(
            f"chain:root_stopped:{last.contract_id}",
            kind="chain_root",
            severity=alerts.Severity.CRITICAL,
            subject=last.pk,
            message=f"The payout root {last.root} {last.state}; no other is published until an operator says"
            " `souk chain retry-root`.",
        )
    return last.may_follow


def _activate(contract: EscrowContract, row: PayoutRoot) -> bool:
    """Active by the time of the chain's final block, not by our clock."""
    client = client_of(contract.chain_id)
    at = client.final()
    now = datetime.fromtimestamp(client.header(at).timestamp, UTC)
    if row.active_at is None or (now < row.active_at and not client.config.is_development):
        return False
    abi = builds.load(builds.ESCROW).abi
    root, _ = client.read(contract.address, abi, "activeRoot", at=at)
    if "0x" + root.hex() != row.root:
        return False
    advance(row, RootState.ACTIVE)
    return True


def _promised(contract: EscrowContract, wallet: str, *, up_to: int | None = None) -> int:
    """All that a wallet was promised, up to an entry."""
    entries = PayoutEntry.objects.filter(contract=contract, wallet=wallet)
    if up_to is not None:
        entries = entries.filter(pk__lte=up_to)
    return int(entries.aggregate(most=Max("cumulative"))["most"] or 0)


@functools.lru_cache(maxsize=TREES_KEPT)
def _cached_tree(contract_id: int, last_entry_id: int) -> MerkleTree:
    contract = EscrowContract.objects.select_related("asset").get(pk=contract_id)
    entries = PayoutEntry.objects.filter(contract=contract, pk__lte=last_entry_id)
    totals = entries.values("wallet").annotate(total=Max("cumulative")).values_list("wallet", "total")
    return merkle.tree({wallet: int(total) for wallet, total in totals}, **_place(contract))


def _tree(contract: EscrowContract, last_entry_id: int) -> MerkleTree:
    """Entries never change and a contract's ids only grow, so that a tree is the same whenever it is built."""
    return _cached_tree(contract.pk, last_entry_id)


def _place(contract: EscrowContract) -> dict[str, Any]:
    return {"chain_id": contract.chain_id, "contract": contract.address, "token": contract.asset.contract}
