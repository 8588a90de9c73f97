"""Is the ledger true? Recomputes everything from the transfers and believes nothing that is stored beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from django.db import connection

from billing.books import verify_events, verify_mirror
from billing.books.balances import AssetTotals, asset_totals
from billing.books.chart_of_accounts import account_id_of
from billing.books.hash_chain import GENESIS, MerkleTree, transfer_hash
from billing.models import Account, DailyRoot, Transfer, UsageReceipt
from marketplace.foundation.event_seals import broken_seals, newest_hash
from marketplace.foundation.snapshot import one_moment
from provider_agent.protocol import receipt_digest, recover_receipt_signer

ROWS_PER_FETCH: Final = 2_000
PROBLEMS_MAX: Final = 1_000  # per check; the first ones show what happened

# Sums of every account from its transfers; of one without a live sum, from those that were rolled up.
_SUMS = """
    WITH legs AS (
        SELECT CASE WHEN leg.is_debit THEN t.debit_id ELSE t.credit_id END AS account_id, leg.is_debit, t.seq,
               CASE WHEN t.mode = 'pending' THEN t.amount WHEN p.id IS NOT NULL THEN -p.amount ELSE 0 END AS pending,
               CASE WHEN t.mode IN ('single', 'post') THEN t.amount ELSE 0 END AS posted
        FROM billing_transfer t LEFT JOIN billing_transfer p ON p.id = t.pending_id
             CROSS JOIN (VALUES (true), (false)) AS leg (is_debit)
    ), true_sums AS (
        SELECT a.id,
               coalesce(sum(l.pending) FILTER (WHERE l.is_debit), 0) AS debits_pending,
               coalesce(sum(l.posted) FILTER (WHERE l.is_debit), 0) AS debits_posted,
               coalesce(sum(l.pending) FILTER (WHERE NOT l.is_debit), 0) AS credits_pending,
               coalesce(sum(l.posted) FILTER (WHERE NOT l.is_debit), 0) AS credits_posted
        FROM billing_account a
             LEFT JOIN legs l ON l.account_id = a.id AND (a.is_summed OR l.seq <= a.rolled_seq)
        GROUP BY a.id
    )
    SELECT a.id,
           format('stored %%s/%%s/%%s/%%s, true %%s/%%s/%%s/%%s (debits pending/posted, credits pending/posted)',
                  a.debits_pending, a.debits_posted, a.credits_pending, a.credits_posted,
                  s.debits_pending, s.debits_posted, s.credits_pending, s.credits_posted)
    FROM billing_account a JOIN true_sums s ON s.id = a.id
    WHERE (a.debits_pending, a.debits_posted, a.credits_pending, a.credits_posted)
          IS DISTINCT FROM (s.debits_pending, s.debits_posted, s.credits_pending, s.credits_posted)
"""
_OVERDRAWN = """
    SELECT a.id, format('below zero by %%s', a.debits_posted + a.debits_pending - a.credits_posted)
    FROM billing_account a WHERE a.is_nonnegative AND a.credits_posted < a.debits_posted + a.debits_pending
"""
_MIXED = """
    SELECT t.id, 'its legs are of different assets' FROM billing_transfer t
    LEFT JOIN billing_account d ON d.id = t.debit_id AND d.asset_id = t.asset_id
    LEFT JOIN billing_account c ON c.id = t.credit_id AND c.asset_id = t.asset_id
    WHERE d.id IS NULL OR c.id IS NULL
"""
# An open hold's account holds its amount; every other job's account holds nothing.
_HOLDS = """
    SELECT coalesce(h.id, a.id), format('%%s is set aside for job %%s, its open hold says %%s',
        coalesce(a.credits_posted - a.debits_posted, 0), coalesce(h.job_id, a.job_id), coalesce(h.amount, 0))
    FROM (SELECT * FROM billing_account WHERE kind = 'job_hold') a
    FULL JOIN (SELECT * FROM billing_hold WHERE state = 'open') h ON h.job_id = a.job_id AND h.owner_id = a.owner_id
    WHERE coalesce(a.credits_posted - a.debits_posted, 0) <> coalesce(h.amount, 0)
"""
_SETTLEMENTS = """
    SELECT s.id, format('the transfers of job %%s: paid %%s, fee %%s, rest %%s; its settlement: %%s, %%s, %%s',
        s.job_id, coalesce(t.paid, 0), coalesce(t.fee, 0), coalesce(t.rest, 0),
        s.paid, s.fee, s.refunded)
    FROM billing_settlement s LEFT JOIN (
        SELECT group_id, sum(amount) FILTER (WHERE code = 'provider_pay') AS paid,
               sum(amount) FILTER (WHERE code = 'platform_fee') AS fee,
               sum(amount) FILTER (WHERE code = 'hold_rest') AS rest
        FROM billing_transfer GROUP BY group_id
    ) t ON t.group_id = s.id
    LEFT JOIN (
        SELECT settlement_id, sum(paid) AS paid, sum(fee) AS fee
        FROM billing_settlementshare GROUP BY settlement_id
    ) shares ON shares.settlement_id = s.id
    WHERE (coalesce(t.paid, 0), coalesce(t.fee, 0), coalesce(t.rest, 0))
          IS DISTINCT FROM (s.paid, s.fee, s.refunded)
       OR (coalesce(shares.paid, 0), coalesce(shares.fee, 0)) IS DISTINCT FROM (s.paid, s.fee)
       OR s.held <> s.paid + s.fee + s.refunded
"""

_DEPOSITS = """
    SELECT d.id, format('its transfer %%s does not say what it says', d.transfer_id)
    FROM billing_deposit d
    LEFT JOIN billing_transfer t ON t.id = d.transfer_id AND t.code = 'deposit'
        AND (t.asset_id, t.amount, t.external_ref) = (d.asset_id, d.amount, d.reference)
    LEFT JOIN billing_account c ON c.id = t.credit_id AND c.owner_id = d.owner_id
    WHERE c.id IS NULL
"""
_DIGESTED: Final = {
    "deposit": "billing_deposit",
    "hold": "billing_hold",
    "settlement": "billing_settlement",
    "share": "billing_settlementshare",
    "receipt": "billing_usagereceipt",
    "evidence": "billing_receiptevidence",
    "top_up": "billing_topup",
}
_DIGEST = (
    "SELECT {key}, 'does not say what it said when it was written' FROM {table} r WHERE row_digest <> billing_digest(r)"
)

_CHECKS: Final = (
    ("sums", "account", _SUMS),
    ("overdraft", "account", _OVERDRAWN),
    ("asset", "transfer", _MIXED),
    ("hold", "hold", _HOLDS),
    ("settlement", "settlement", _SETTLEMENTS),
    ("deposit", "deposit", _DEPOSITS),
    *(("digest", subject, _DIGEST.format(key="id", table=table)) for subject, table in _DIGESTED.items()),
    ("digest", "day", _DIGEST.format(key="day", table="billing_dailyroot")),
    *verify_mirror.CHECKS,
    *verify_events.CHECKS,
)

Progress = Callable[[str, int, int], None]  # the check, rows done, rows in all


@dataclass(frozen=True)
class Problem:
    """One row that is not what it should be."""

    check: str
    subject: str  # "transfer", "account", ...
    id: str
    message: str


@dataclass
class VerifyReport:
    """The number of rows that were checked, and every problem that was found."""

    accounts: int = 0
    transfers: int = 0
    sealed: int = 0
    receipts: int = 0
    head: str = GENESIS  # hash of the newest sealed transfer: publish it, and nobody can rewrite what it covers
    events_head: str = GENESIS  # the same of the newest sealed events
    totals: list[AssetTotals] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_true(self) -> bool:
        """No check found anything."""
        return not self.problems


def verify(on_progress: Progress | None = None) -> VerifyReport:
    """Recompute sums, balances, both hash chains, roots, digests, receipts, holds, deposits, settlements, top-ups.

    All of one moment, in memory that does not grow with the ledger; `on_progress` is called every few thousand rows.
    """
    report_progress = on_progress or (lambda what, done, of: None)
    report = VerifyReport()
    with one_moment(is_read_only=True):
        report.accounts = _count("billing_account")
        report.transfers = _count("billing_transfer")
        report.receipts = _count("billing_usagereceipt")
        with _planned_for_whole_tables():
            for number, (check, subject, sql) in enumerate(_CHECKS):
                report_progress("tables", number, len(_CHECKS))
                report.problems += [Problem(check, subject, str(row[0]), row[1]) for row in _select(sql)]
        report.totals = asset_totals()
        report.problems += [
            Problem("trial_balance", "asset", totals.asset, f"debits and credits differ: {totals}")
            for totals in report.totals
            if not totals.is_balanced
        ]
        report.problems += _walk_accounts(report, report_progress)
        report.problems += _walk_chain(report, report_progress)
        report.problems += _check_roots()
        report.problems += _walk_receipts(report, report_progress)
        report.problems += _walk_events()
        report.events_head = newest_hash()
    return report


def _walk_accounts(report: VerifyReport, report_progress: Progress) -> list[Problem]:
    """An account's id follows from its name: who changes whose it is changes its name only."""
    problems: list[Problem] = []
    rows = Account.objects.values_list("id", "kind", "owner_id", "job_id", "asset_id").order_by("pk")
    for number, (account_id, kind, owner_id, job_id, asset_id) in enumerate(rows.iterator(chunk_size=ROWS_PER_FETCH)):
        if account_id_of(kind, owner_id, job_id, asset_id) != account_id and len(problems) < PROBLEMS_MAX:
            problems.append(Problem("name", "account", str(account_id), f"is not {kind} {owner_id} {job_id}"))
        if not number % ROWS_PER_FETCH:
            report_progress("accounts", number, report.accounts)
    return problems


def _walk_chain(report: VerifyReport, report_progress: Progress) -> list[Problem]:
    """Every sealed transfer in order: is it as it was when it was sealed, and is none missing before it?"""
    problems: list[Problem] = []
    before, first_unsealed = GENESIS, None
    for number, row in enumerate(Transfer.objects.order_by("seq").iterator(chunk_size=ROWS_PER_FETCH)):
        if not number % ROWS_PER_FETCH:
            report_progress("transfers", number, report.transfers)
        if row.hash is None or row.prev_hash is None:
            first_unsealed = first_unsealed or row.seq
            continue
        wrong = ""
        if first_unsealed is not None:
            wrong = f"sealed, although transfer {first_unsealed} before it is not"
        elif row.prev_hash != before:
            wrong = "does not follow the transfer before it: one was removed, inserted or resealed"
        elif row.hash != transfer_hash(row, row.prev_hash):
            wrong = "does not say what it said when it was sealed"
        if wrong and len(problems) < PROBLEMS_MAX:
            problems.append(Problem("hash_chain", "transfer", str(row.pk), f"seq {row.seq} {wrong}"))
        before = row.hash
        report.sealed += 1
    report.head = before
    return problems


def _check_roots() -> list[Problem]:
    """Every day's root against the hashes that are there, one after the other."""
    problems = []
    expected_after = 0
    for root in DailyRoot.objects.order_by("last_seq"):
        rows = Transfer.objects.filter(seq__gt=expected_after, seq__lte=root.last_seq, hash__isnull=False).order_by(
            "seq"
        )
        tree, first = MerkleTree(), 0
        for seq, value in rows.values_list("seq", "hash").iterator(chunk_size=ROWS_PER_FETCH):
            first = first or seq
            tree.add(str(value))
        there = (tree.leaves, first, tree.root if tree.leaves else "")
        if there != (root.transfers, root.first_seq, root.root):
            message = f"{root.transfers} transfers were sealed under this root; {tree.leaves} are there"
            problems.append(Problem("daily_root", "day", str(root.day), message))
        expected_after = root.last_seq
    return problems


def _walk_receipts(report: VerifyReport, report_progress: Progress) -> list[Problem]:
    """Every stored receipt: is its digest that of its columns, and its signature its signer's?"""
    problems: list[Problem] = []
    for number, row in enumerate(UsageReceipt.objects.order_by("pk").iterator(chunk_size=ROWS_PER_FETCH)):
        if not number % ROWS_PER_FETCH:
            report_progress("receipts", number, report.receipts)
        wrong = _receipt_problem(row)
        if wrong and len(problems) < PROBLEMS_MAX:
            problems.append(Problem("receipt", "receipt", str(row.pk), f"#{row.seq} of lease {row.lease_id}: {wrong}"))
    return problems


def _walk_events() -> list[Problem]:
    """Every sealed event in order: is it as it was when it was sealed, and is none missing, and none new?"""
    broken = islice(broken_seals(), PROBLEMS_MAX)
    return [Problem("event_chain", "event_seal", str(seal.last_id), seal.message) for seal in broken]


def _receipt_problem(row: UsageReceipt) -> str:
    try:
        signed = row.as_signed()
        if receipt_digest(signed.receipt, row.domain) != row.digest:
            return "its digest is not that of what it says"
        if recover_receipt_signer(signed, row.domain, in_any_form=True).lower() != row.signer.lower():
            return "its signature is not its signer's"
    except ValueError as error:
        return f"cannot be read: {str(error).splitlines()[0]}"
    return ""


@contextmanager
def _planned_for_whole_tables() -> Iterator[None]:
    """Without nested loops: planned by figures of when a table was nearly empty, they take minutes where it is not."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_nestloop = off")
        yield
        cursor.execute("SET LOCAL enable_nestloop = DEFAULT")


def _count(table: str) -> int:
    return int(_select(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - a constant of this file


def _select(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} LIMIT {PROBLEMS_MAX}", [])  # with parameters, so that %% is one %
        return list(cursor.fetchall())
