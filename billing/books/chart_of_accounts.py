"""The chart of accounts: find accounts by what they are for, or open them; two openers get the same ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from billing.account_kinds import ENTRIES_ONLY_KINDS, NONNEGATIVE_KINDS, AccountKind
from billing.models import Account, Asset
from billing.models.ledger import USD_ASSET_CODE, USD_ASSET_ID, USD_SCALE

ACCOUNT_NAMESPACE: Final = UUID("5f0c2a52-6d0e-4c8e-9a55-736f756b0001")


class AccountName(NamedTuple):
    """What one account is for; there is exactly one of each name."""

    kind: AccountKind
    owner_id: UUID | None = None
    job_id: UUID | None = None
    asset_id: int = USD_ASSET_ID

    @property
    def id(self) -> UUID:
        """The account's id follows from its name, so that whoever opens it first gives it the same one."""
        return account_id_of(self.kind, self.owner_id, self.job_id, self.asset_id)


def account_id_of(kind: str, owner_id: UUID | None, job_id: UUID | None, asset_id: int) -> UUID:
    """The id of the one account of this name."""
    return uuid5(ACCOUNT_NAMESPACE, f"{asset_id}/{kind}/{owner_id or ''}/{job_id or ''}")


def open_accounts(names: Sequence[AccountName]) -> list[Account]:
    """The accounts of these names, in their order; made empty where they are missing."""
    found = Account.objects.in_bulk([name.id for name in names])
    missing = {name for name in names if name.id not in found}
    if missing:
        if any(name.asset_id == USD_ASSET_ID for name in missing):
            open_usd()
        # In one order for all. ON CONFLICT DO NOTHING waits for a racing opener and then leaves the row to it.
        fresh = [_empty(name) for name in sorted(missing, key=lambda name: name.id)]
        Account.objects.bulk_create(fresh, ignore_conflicts=True)
        found |= {account.pk: account for account in fresh}
    return [found[name.id] for name in names]


def open_account(
    kind: AccountKind, owner_id: UUID | None = None, *, job_id: UUID | None = None, asset_id: int = USD_ASSET_ID
) -> Account:
    """The one account of this name."""
    [account] = open_accounts([AccountName(kind, owner_id, job_id, asset_id)])
    return account


def open_usd() -> None:
    """See that the dollar exists."""
    usd = Asset(id=USD_ASSET_ID, code=USD_ASSET_CODE, scale=USD_SCALE, kind=Asset.Kind.FIAT)
    Asset.objects.bulk_create([usd], ignore_conflicts=True)


def _empty(name: AccountName) -> Account:
    return Account(
        id=name.id,
        kind=name.kind,
        owner_id=name.owner_id,
        job_id=name.job_id,
        asset_id=name.asset_id,
        is_nonnegative=name.kind in NONNEGATIVE_KINDS,
        is_summed=name.kind not in ENTRIES_ONLY_KINDS,
    )


def lock_accounts(account_ids: Collection[UUID]) -> None:
    """Lock these in the one order for all, in the caller's transaction: before posts that touch them one by one."""
    rows = Account.objects.filter(pk__in=account_ids).order_by("pk")
    list(rows.select_for_update(no_key=True).values_list("pk"))
