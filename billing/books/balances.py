"""What accounts hold, each figure read in one statement, so that it is true of one moment."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from billing.account_kinds import AccountKind
from billing.models.ledger import USD_ASSET_ID

# An account without a live sum holds what was rolled up, plus the entries since.
_ENTRIES_SINCE = """
    CASE WHEN a.is_summed THEN 0 ELSE (
        SELECT coalesce(sum(t.amount), 0) FROM billing_transfer t WHERE t.{leg}_id = a.id AND t.seq > a.rolled_seq
    ) END"""
_CREDITS = f"(a.credits_posted + {_ENTRIES_SINCE.format(leg='credit')})"
_DEBITS = f"(a.debits_posted + {_ENTRIES_SINCE.format(leg='debit')})"

_BALANCE = f"""
    SELECT coalesce(sum({_CREDITS} - {_DEBITS} - a.debits_pending), 0) FROM billing_account a
    WHERE a.kind = %s AND a.asset_id = %s AND a.owner_id IS NOT DISTINCT FROM %s::uuid
"""  # noqa: S608 - constants of this file
_TRIAL = f"""
    SELECT s.code, sum({_DEBITS}), sum({_CREDITS}), sum(a.debits_pending), sum(a.credits_pending)
    FROM billing_account a JOIN billing_asset s ON s.id = a.asset_id GROUP BY s.code ORDER BY s.code
"""  # noqa: S608
_BY_KIND = f"""
    SELECT s.code, a.kind, count(*), sum({_CREDITS} - {_DEBITS})
    FROM billing_account a JOIN billing_asset s ON s.id = a.asset_id GROUP BY s.code, a.kind ORDER BY s.code, a.kind
"""  # noqa: S608


@dataclass(frozen=True)
class AssetTotals:
    """All accounts of one asset added up."""

    asset: str
    debits_posted: int
    credits_posted: int
    debits_pending: int
    credits_pending: int

    @property
    def is_balanced(self) -> bool:
        """Every unit that left an account arrived in another."""
        return self.debits_posted == self.credits_posted and self.debits_pending == self.credits_pending


@dataclass(frozen=True)
class KindTotal:
    """All accounts of one kind and asset added up; mirrors of the outside world are negative."""

    asset: str
    kind: str
    accounts: int
    balance: int


def balance(owner_id: UUID | None, kind: AccountKind | str, *, asset_id: int = USD_ASSET_ID) -> int:
    """What may be debited of all accounts of this kind and owner (None: the platform): credits - debits - pending."""
    with connection.cursor() as cursor:
        cursor.execute(_BALANCE, [str(kind), asset_id, owner_id])
        return int(cursor.fetchone()[0])


def trial_balance() -> dict[str, int]:
    """Asset code -> credits minus debits over all accounts: 0 at every commit, or the ledger is broken."""
    return {
        totals.asset: totals.credits_posted + totals.credits_pending - totals.debits_posted - totals.debits_pending
        for totals in asset_totals()
    }


def asset_totals() -> list[AssetTotals]:
    """The sums of all accounts, one row an asset; `is_balanced` holds at every commit."""
    with connection.cursor() as cursor:
        cursor.execute(_TRIAL)
        return [AssetTotals(row[0], *map(int, row[1:])) for row in cursor.fetchall()]


def balances_by_kind() -> list[KindTotal]:
    """Posted balances by kind of account; those of one asset add up to zero."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_KIND)
        return [KindTotal(row[0], row[1], int(row[2]), int(row[3])) for row in cursor.fetchall()]
