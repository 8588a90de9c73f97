"""The chart of accounts: find an account by what it is for, or open it; two openers get the same one."""

from __future__ import annotations

from uuid import UUID

from billing.kinds import ENTRIES_ONLY_KINDS, NONNEGATIVE_KINDS, AccountKind
from billing.models import Account, Asset
from billing.models.ledger import USD_ASSET_CODE, USD_ASSET_ID, USD_SCALE


def open_account(
    kind: AccountKind, owner_id: UUID | None = None, *, job_id: UUID | None = None, asset_id: int = USD_ASSET_ID
) -> Account:
    """The one account of this kind, owner, job and asset; made empty when it is missing."""
    name = {"kind": kind, "owner_id": owner_id, "job_id": job_id, "asset_id": asset_id}
    account = Account.objects.filter(**name).first()
    if account is not None:
        return account
    if asset_id == USD_ASSET_ID:
        open_usd()
    # ON CONFLICT DO NOTHING waits for a racing opener and then leaves the row to it.
    fresh = Account(**name, is_nonnegative=kind in NONNEGATIVE_KINDS, is_summed=kind not in ENTRIES_ONLY_KINDS)
    Account.objects.bulk_create([fresh], ignore_conflicts=True)
    return Account.objects.get(**name)


def open_usd() -> None:
    """See that the dollar exists."""
    usd = Asset(id=USD_ASSET_ID, code=USD_ASSET_CODE, scale=USD_SCALE, kind=Asset.Kind.FIAT)
    Asset.objects.bulk_create([usd], ignore_conflicts=True)
