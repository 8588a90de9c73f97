"""Seal what is owed: one signed report over every single account, of one moment of the hash chain.

The moment is that after the newest sealed transfer: what was posted since is subtracted from the sums, so that a
report can be recomputed from the transfers, which it names. Each report names the one before it.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection
from django.db.models import Q

from billing.account_kinds import OWNED_KINDS, AccountKind
from billing.errors import SolvencyUnprovable
from billing.models import ChainBlock, ChainEvent, EscrowContract, SolvencyChunk, SolvencyReport, Transfer
from billing.models.ledger import Asset
from billing.proofs import solvency, sum_tree
from billing.solvency.totals import AssetSolvency, add_kind
from billing.solvency.tree import LEAF_BYTES, Chunk, Owed, build
from marketplace.foundation import clock, signing
from marketplace.foundation.exclusive import only_one
from marketplace.foundation.snapshot import one_moment
from provider_agent.protocol import export_bytes

PUBLISHING: Final = "billing.publish_solvency"  # one process at a time
ROWS_PER_FETCH: Final = 5_000
CHUNKS_PER_INSERT: Final = 200
SECRET_BYTES: Final = 32
PROOFS_KEPT: Final = timedelta(hours=48)  # of every report
DAILY_PROOFS_KEPT: Final = timedelta(days=400)  # of the first of each day

# What an account held after transfer %(seq)s: its sums, less what was posted to it later. An account without a live sum
# holds its rolled-up sum, which reaches to a sealed transfer, and its entries since.
_LATER = """
    WITH later AS (
        SELECT account_id, sum(amount) AS amount FROM (
            SELECT t.credit_id AS account_id, t.amount FROM billing_transfer t
            WHERE t.seq > %(seq)s AND t.mode IN ('single', 'post')
            UNION ALL
            SELECT t.debit_id, -t.amount FROM billing_transfer t
            WHERE t.seq > %(seq)s AND t.mode IN ('single', 'post')
        ) legs GROUP BY account_id
    )
"""
_OWED = f"""{_LATER}
    SELECT a.asset_id, a.id, a.kind, a.owner_id, a.job_id,
           a.credits_posted - a.debits_posted - coalesce(l.amount, 0) AS held
    FROM billing_account a LEFT JOIN later l ON l.account_id = a.id
    WHERE a.kind = ANY(%(kinds)s) AND a.credits_posted - a.debits_posted - coalesce(l.amount, 0) <> 0
"""  # noqa: S608 - constants of this file
_BY_KIND = f"""{_LATER}
    SELECT a.asset_id, a.kind, sum(
        a.credits_posted - a.debits_posted + CASE WHEN a.is_summed THEN -coalesce(l.amount, 0) ELSE (
            SELECT coalesce(sum(t.amount), 0) FROM billing_transfer t
            WHERE t.credit_id = a.id AND t.seq > a.rolled_seq AND t.seq <= %(seq)s
        ) - (
            SELECT coalesce(sum(t.amount), 0) FROM billing_transfer t
            WHERE t.debit_id = a.id AND t.seq > a.rolled_seq AND t.seq <= %(seq)s
        ) END)
    FROM billing_account a LEFT JOIN later l ON l.account_id = a.id GROUP BY a.asset_id, a.kind
"""  # noqa: S608


def publish_due() -> SolvencyReport | None:
    """A new report, where it is time for one and something was sealed since the last; None else.

    Raises SolvencyUnprovable, and then publishes nothing.
    """
    with only_one(PUBLISHING) as is_mine:  # decided under the lock, or two processes would each find a report due
        return _seal() if is_mine and _is_due() else None


def publish() -> SolvencyReport | None:
    """Seal a report of the newest sealed transfer; None where another process does so, or nothing is sealed.

    Raises SolvencyUnprovable, and then publishes nothing.
    """
    with only_one(PUBLISHING) as is_mine:
        return _seal() if is_mine else None


def _is_due() -> bool:
    newest = SolvencyReport.objects.order_by("-number").first()
    head = Transfer.objects.filter(hash__isnull=False).order_by("-seq").values_list("seq", flat=True).first()
    if head is None or (newest is not None and head <= newest.last_seq):
        return False
    if newest is None:
        return True
    now, every = clock.now(), timedelta(seconds=settings.SOUK_SOLVENCY_SECONDS)
    return now >= newest.at + every or now.date() != newest.at.date()


def _seal() -> SolvencyReport | None:
    """Seal a report from one snapshot, which is taken with the lock held: an older one may miss the newest report."""
    with one_moment(is_read_only=False):
        head = Transfer.objects.filter(hash__isnull=False).order_by("-seq").first()
        if head is None or head.hash is None:
            return None
        previous, now = SolvencyReport.objects.order_by("-number").first(), clock.now()
        secret = secrets.token_bytes(SECRET_BYTES)
        assets = {asset.pk: asset for asset in Asset.objects.all()}
        trees = {
            asset_id: build(assets[asset_id].code, accounts, secret)
            for asset_id, accounts in _accounts(head.seq).items()
        }
        body: dict[str, Any] = {
            "number": previous.number + 1 if previous else 1,
            "at": now.isoformat(timespec="seconds"),
            "previous": previous.commitment if previous else solvency.NO_REPORT,
            "transfers": {"seq": head.seq, "hash": head.hash},
            "assets": _assets_json(head.seq, assets, trees),
        }
        report = SolvencyReport.objects.create(
            number=body["number"],
            body=body,
            signature=signing.sign(export_bytes(solvency.FORMAT, body)),
            server_public_key=signing.server_public_key_hex(),
            commitment=solvency.commitment_of(body),
            last_seq=head.seq,
            secret=secret,
            is_daily=previous is None or previous.at.date() != now.date(),
            at=now,
        )
        for asset_id, chunks in trees.items():
            _store(report, asset_id, chunks)
    return report


def forget_old_proofs() -> int:
    """Delete trees that nobody is given proofs of any more; reports stay. How many rows."""
    now = clock.now()
    old = SolvencyChunk.objects.filter(report__at__lt=now - DAILY_PROOFS_KEPT)
    passing = SolvencyChunk.objects.filter(report__is_daily=False, report__at__lt=now - PROOFS_KEPT)
    return old.delete()[0] + passing.delete()[0]


def _accounts(seq: int) -> dict[int, list[Owed]]:
    """Asset -> every account that is owed something."""
    found: dict[int, list[Owed]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_OWED, {"seq": seq, "kinds": sorted(OWNED_KINDS)})
        while rows := cursor.fetchmany(ROWS_PER_FETCH):
            for asset_id, account_id, kind, owner_id, job_id, held in rows:
                found[asset_id].append(Owed(account_id, kind, owner_id, job_id, int(held)))
    return found


def _sums(seq: int) -> dict[int, AssetSolvency]:
    """Asset -> both sides by kind: added up by the database, so that a tree that lacks an account is found out."""
    coins = set(Asset.objects.filter(kind=Asset.Kind.NATIVE).values_list("pk", flat=True))
    found: dict[int, AssetSolvency] = defaultdict(AssetSolvency)
    with connection.cursor() as cursor:
        cursor.execute(_BY_KIND, {"seq": seq})
        for asset_id, kind, balance in cursor.fetchall():
            add_kind(found[asset_id], AccountKind(kind), int(balance), is_coin=asset_id in coins)
    return found


def _places(seq: int) -> dict[int, dict[str, Any]]:
    """Asset -> its place on a chain, for anybody to check, and the block up to which the books follow."""
    found = {}
    of_escrow = Q(debit__kind=AccountKind.CHAIN_ESCROW) | Q(credit__kind=AccountKind.CHAIN_ESCROW)
    moving = set(Transfer.objects.filter(of_escrow, seq__gt=seq).order_by().values_list("asset_id", flat=True))
    unbooked = ChainEvent.objects.filter(processed_at=None, block__state=ChainBlock.State.FINAL)
    waiting = set(unbooked.values_list("contract", flat=True).distinct())
    for contract in EscrowContract.objects.select_related("asset"):
        is_settled = contract.asset_id not in moving and contract.address not in waiting
        found[contract.asset_id] = {
            "chain_id": contract.chain_id,
            "token": contract.asset.contract,
            "contract": contract.address,
            "block": max(contract.scanned_block, contract.deployed_block) if is_settled else None,
        }
    return found


def _assets_json(seq: int, assets: dict[int, Asset], trees: dict[int, list[Chunk]]) -> list[dict[str, Any]]:
    sums, places = _sums(seq), _places(seq)
    return [
        _asset_json(assets[asset_id], sums[asset_id], trees.get(asset_id, []), places.get(asset_id))
        for asset_id in sorted(sums, key=lambda asset_id: assets[asset_id].code)
    ]


def _asset_json(asset: Asset, one: AssetSolvency, chunks: list[Chunk], place: dict[str, Any] | None) -> dict[str, Any]:
    root = sum_tree.root_of([chunk.node for chunk in chunks]) if chunks else sum_tree.Node(bytes(32), 0)
    if root.sum != one.owed:
        raise SolvencyUnprovable(why=f"the accounts hold {root.sum} of {asset.code}, and {one.owed} is owed")
    return {
        "asset": asset.code,
        "scale": asset.scale,
        "leaves": sum(len(chunk.leaves) for chunk in chunks) // LEAF_BYTES,
        "root": root.hash.hex(),
        "owed": str(one.owed),
        "owed_to_customers": str(one.customers),
        "owed_to_providers": str(one.providers),
        "in_dispute": str(one.disputed),
        "own": {str(kind): str(amount) for kind, amount in sorted(one.own.items())},
        "held": str(one.held),
        "mirrors": {str(kind): str(amount) for kind, amount in sorted(one.mirrors.items())},
        "chain": place,
    }


def _store(report: SolvencyReport, asset_id: int, chunks: list[Chunk]) -> None:
    rows = [
        SolvencyChunk(
            report=report,
            asset_id=asset_id,
            number=number,
            first_owner=chunk.first_owner,
            hash=chunk.node.hash,
            sum=chunk.node.sum,
            leaves=chunk.leaves,
        )
        for number, chunk in enumerate(chunks)
    ]
    SolvencyChunk.objects.bulk_create(rows, batch_size=CHUNKS_PER_INSERT)
