"""What a provider earned, kept and was paid in a period: lines from the ledger, which add up to the unit.

    opening + every line = closing, by column and in all; one section an asset

A line is one transfer that touched the provider's accounts and is final; what is only set aside for a payout is not on
it yet. Lines are read in chunks by `seq`, so that a statement of any length takes little memory and no long
transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection

from billing.account_kinds import AccountKind
from billing.models import Account, Asset, SettlementShare
from billing.payouts.errors import StatementRefused
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock

LINES_PER_FETCH: Final = 2_000
PERIOD_DAYS_MAX: Final = 800

COLUMNS: Final = {
    AccountKind.PROVIDER_PENDING: "pending",
    AccountKind.PROVIDER_AVAILABLE: "available",
    AccountKind.PROVIDER_RESERVE: "reserve",
    AccountKind.PROVIDER_STAKE: "stake",
}
OF_A_PAYOUT: Final = frozenset({TransferCode.PAYOUT, TransferCode.PAYOUT_RETURNED})

# What each account holds now, less what moved since: cheap for a period that ended lately.
_OPENING = """
    SELECT a.kind, a.credits_posted - a.debits_posted
        - coalesce((SELECT sum(t.amount) FROM billing_transfer t
                    WHERE t.credit_id = a.id AND t.mode IN ('single', 'post') AND t.created_at >= %(since)s), 0)
        + coalesce((SELECT sum(t.amount) FROM billing_transfer t
                    WHERE t.debit_id = a.id AND t.mode IN ('single', 'post') AND t.created_at >= %(since)s), 0)
    FROM billing_account a WHERE a.id = ANY(%(ids)s)
"""
_LEG = """
    SELECT t.seq, t.created_at, t.code, t.amount, t.job_id, t.group_id, t.external_ref, t.debit_id, t.credit_id
    FROM unnest(%(ids)s::uuid[]) AS mine (id) CROSS JOIN LATERAL (
        SELECT * FROM billing_transfer x
        WHERE x.{leg}_id = mine.id AND x.seq > %(after)s AND x.mode IN ('single', 'post')
          AND x.created_at >= %(since)s AND x.created_at < %(until)s
        ORDER BY x.seq LIMIT %(limit)s
    ) t
"""
_LINES = f"{_LEG.format(leg='debit')} UNION {_LEG.format(leg='credit')} ORDER BY seq LIMIT %(limit)s"


@dataclass(frozen=True)
class Period:
    """From the first moment of one day (UTC) up to the first moment of another."""

    since: datetime
    until: datetime

    @classmethod
    def of_days(cls, first: date, last: date) -> Period:
        """Both days are in it; raises StatementRefused."""
        if last < first:
            raise StatementRefused(why="its last day is before its first")
        if (last - first).days >= PERIOD_DAYS_MAX:
            raise StatementRefused(why=f"it is longer than {PERIOD_DAYS_MAX} days")
        if first > clock.now().date():
            raise StatementRefused(why="it has not begun")
        midnight = time(tzinfo=UTC)
        return cls(datetime.combine(first, midnight), datetime.combine(last + timedelta(days=1), midnight))


@dataclass
class Sums:
    """Amounts by column, in base units."""

    pending: int = 0
    available: int = 0
    reserve: int = 0
    stake: int = 0

    @property
    def total(self) -> int:
        return self.pending + self.available + self.reserve + self.stake

    def add(self, other: Sums) -> None:
        """Add each column."""
        for column in COLUMNS.values():
            setattr(self, column, getattr(self, column) + getattr(other, column))


@dataclass
class Line:
    """One final transfer, as its provider sees it."""

    seq: int
    at: datetime
    code: str
    change: Sums
    job_id: UUID | None = None
    lease_id: UUID | None = None
    payout_id: UUID | None = None
    external_id: str = ""
    gross: int | None = None  # of a lease's pay: what its customer paid, and what the platform took of it
    fee: int | None = None


@dataclass
class Section:
    """The lines of one asset. `closing` is true once every line was taken."""

    asset: Asset
    opening: Sums
    closing: Sums
    _provider_id: UUID
    _period: Period
    _accounts: dict[UUID, str] = field(default_factory=dict)  # id -> column

    def lines(self) -> Iterator[Line]:
        """Every line, oldest first; adds them to `closing` as they go by. To be taken once."""
        shares = _Shares(self._provider_id)
        after = 0
        while True:
            rows = self._fetch(after)
            shares.load([row[4] for row in rows if row[2] == TransferCode.PROVIDER_PAY and row[4]])
            for row in rows:
                line = self._line(row, shares)
                self.closing.add(line.change)
                yield line
            if len(rows) < LINES_PER_FETCH:
                return
            after = rows[-1][0]

    def _fetch(self, after: int) -> list[tuple]:  # type: ignore[type-arg]
        values: dict[str, Any] = {
            "ids": list(self._accounts),
            "after": after,
            "since": self._period.since,
            "until": self._period.until,
            "limit": LINES_PER_FETCH,
        }
        with connection.cursor() as cursor:
            cursor.execute(_LINES, values)
            return list(cursor.fetchall())

    def _line(self, row: tuple, shares: _Shares) -> Line:  # type: ignore[type-arg]
        seq, at, code, amount, job_id, group_id, external_ref, debit_id, credit_id = row
        change = Sums()
        for account_id, sign in ((debit_id, -1), (credit_id, 1)):
            column = self._accounts.get(account_id)
            if column:
                setattr(change, column, getattr(change, column) + sign * int(amount))
        line = Line(seq, at.astimezone(UTC), code, change, job_id=job_id, external_id=external_ref)
        if code in OF_A_PAYOUT:
            line.payout_id = group_id
        if code == TransferCode.PROVIDER_PAY and job_id is not None:
            share = shares.take(job_id, int(amount))
            if share is not None:
                line.lease_id, line.gross, line.fee = share.lease_id, share.charged, share.fee
        return line


class _Shares:
    """Finds the lease behind each pay: the job's shares of this provider, each taken once."""

    def __init__(self, provider_id: UUID) -> None:
        self._provider_id = provider_id
        self._left: dict[UUID, list[SettlementShare]] = {}

    def load(self, job_ids: Sequence[UUID]) -> None:
        """Look up what is new; what is not asked for any more is forgotten."""
        wanted = set(job_ids)
        self._left = {job_id: left for job_id, left in self._left.items() if job_id in wanted}
        missing = wanted - set(self._left)
        found: dict[UUID, list[SettlementShare]] = defaultdict(list)
        rows = SettlementShare.objects.filter(provider_id=self._provider_id, settlement__job_id__in=missing)
        for share in rows.select_related("settlement").order_by("lease_id"):
            found[share.settlement.job_id].append(share)
        self._left |= {job_id: found[job_id] for job_id in missing}

    def take(self, job_id: UUID, paid: int) -> SettlementShare | None:
        left = self._left.get(job_id, [])
        share = next((share for share in left if share.paid == paid), None)
        if share is not None:
            left.remove(share)
        return share


def make_statement(provider_id: UUID, period: Period) -> list[Section]:
    """One section for every asset that this provider ever had."""
    kinds = [str(kind) for kind in COLUMNS]
    by_asset: dict[int, dict[UUID, str]] = defaultdict(dict)
    for account in Account.objects.filter(owner_id=provider_id, kind__in=kinds):
        by_asset[account.asset_id][account.pk] = COLUMNS[AccountKind(account.kind)]
    sections = []
    for asset in Asset.objects.filter(pk__in=by_asset).order_by("pk"):
        accounts = by_asset[asset.pk]
        opening = _opening(list(accounts), period.since)
        closing = Sums()
        closing.add(opening)
        sections.append(Section(asset, opening, closing, provider_id, period, accounts))
    return sections


def _opening(ids: list[UUID], since: datetime) -> Sums:
    sums = Sums()
    with connection.cursor() as cursor:
        cursor.execute(_OPENING, {"ids": ids, "since": since})
        for kind, amount in cursor.fetchall():
            setattr(sums, COLUMNS[AccountKind(kind)], int(amount))
    return sums
