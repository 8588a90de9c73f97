"""Prove to an owner that its accounts are among the debts of a sealed report; and show the reports."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from billing.errors import SolvencyReportNotFound
from billing.models import Account, SolvencyChunk, SolvencyReport
from billing.models.ledger import Asset
from billing.proofs import solvency
from billing.proofs.sum_tree import Node, sisters_of
from billing.solvency.tree import LEAVES_PER_CHUNK, StoredLeaf, chunks_of_owner, owner_key, salt_of, unpack

CHUNKS_PER_PAGE: Final = 4  # at most 1,024 accounts
REPORTS_PER_PAGE: Final = 100
NUMBER_MAX: Final = 2**53  # of a report, or a page: JSON's whole numbers


@dataclass(frozen=True)
class _Place:
    """A chunk in which an owner's leaves may be, and the way from it to the root."""

    chunk_id: int
    asset_id: int
    number: int
    sisters: list[Node]


def find_report(number: int | None = None) -> SolvencyReport:
    """A report by its number, or the newest. Raises SolvencyReportNotFound."""
    reports = SolvencyReport.objects.order_by("-number")
    report = (reports if number is None else reports.filter(number=number)).first()
    if report is None:
        raise SolvencyReportNotFound(why="none was sealed yet" if number is None else f"there is no number {number}")
    return report


def list_reports(*, before: int | None = None) -> list[dict[str, Any]]:
    """Signed reports, newest first, at most a page."""
    reports = SolvencyReport.objects.order_by("-number").defer("secret")
    if before is not None:
        reports = reports.filter(number__lt=before)
    return [as_document(report) for report in reports[:REPORTS_PER_PAGE]]


def as_document(report: SolvencyReport) -> dict[str, Any]:
    """What was published: it proves itself."""
    return {
        "format": solvency.FORMAT,
        "server_public_key": report.server_public_key,
        "signature": report.signature,
        "body": report.body,
    }


def prove(owner_id: UUID, *, number: int | None = None, page: int = 0) -> dict[str, Any]:
    """A page of the owner's accounts in a report, each with salt and way to the root: `ProofPage` as JSON.

    Five queries, however many accounts there are. Raises SolvencyReportNotFound, also for a tree that is not kept.
    """
    report = find_report(number)
    places = _find_places(report, owner_key(bytes(report.secret), owner_id))
    shown = places[page * CHUNKS_PER_PAGE : (page + 1) * CHUNKS_PER_PAGE]
    chunks = SolvencyChunk.objects.in_bulk([place.chunk_id for place in shown])
    if len(chunks) < len(shown):  # forgotten since we looked
        raise _no_longer_kept(report)
    leaves = {place.chunk_id: unpack(bytes(chunks[place.chunk_id].leaves)) for place in shown}
    ids = [leaf.account_id for found in leaves.values() for leaf in found]
    own = {account.pk: account for account in Account.objects.of(owner_id).filter(pk__in=ids)}
    codes = dict(Asset.objects.values_list("pk", "code"))
    accounts = []
    for place in shown:
        below = leaves[place.chunk_id]
        for index, leaf in enumerate(below):
            if (account := own.get(leaf.account_id)) is not None:
                own_leaf = {
                    "asset": codes[place.asset_id],
                    "kind": account.kind,
                    "owner_id": str(account.owner_id),
                    "job_id": str(account.job_id) if account.job_id else None,
                    "amount": str(leaf.node.sum),
                    "salt": salt_of(bytes(report.secret), account.pk).hex(),
                }
                accounts.append(own_leaf | _way(below, index, place))
    is_last = (page + 1) * CHUNKS_PER_PAGE >= len(places)
    return {
        "report": as_document(report),
        "owner_id": str(owner_id),
        "accounts": accounts,
        "next": None if is_last else page + 1,
    }


def _find_places(report: SolvencyReport, key: bytes) -> list[_Place]:
    rows = report.chunks.order_by("asset_id", "number").values_list(
        "asset_id", "pk", "number", "first_owner", "hash", "sum"
    )
    found, seen = [], 0
    for asset_id, group in groupby(rows, key=lambda row: row[0]):
        chunks = list(group)
        seen += len(chunks)
        nodes = [Node(bytes(digest), total) for *_, digest, total in chunks]
        for place in chunks_of_owner([bytes(row[3]) for row in chunks], key):
            found.append(_Place(chunks[place][1], asset_id, place, sisters_of(nodes, place)))
    if not seen and any(asset["leaves"] for asset in report.body["assets"]):
        raise _no_longer_kept(report)
    return found


def _no_longer_kept(report: SolvencyReport) -> SolvencyReportNotFound:
    return SolvencyReportNotFound(why=f"proofs of number {report.number} are no longer kept")


def _way(below: list[StoredLeaf], index: int, place: _Place) -> dict[str, Any]:
    """A leaf's place and its sisters, those in its chunk first."""
    sisters = sisters_of([leaf.node for leaf in below], index) + place.sisters
    return {
        "index": place.number * LEAVES_PER_CHUNK + index,
        "sisters": [{"hash": node.hash.hex(), "sum": str(node.sum)} for node in sisters],
    }
