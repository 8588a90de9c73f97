"""What one owner has, by asset and kind of account, all of one moment."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import F, Sum

from billing.account_kinds import AccountKind
from billing.models import Account
from billing.models.ledger import USD_ASSET_CODE, USD_SCALE


@dataclass(frozen=True)
class AssetBalance:
    """One asset of one owner; a kind without an account holds 0. In base units."""

    asset: str
    scale: int
    by_kind: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))


def balances_of(owner_id: UUID) -> list[AssetBalance]:
    """Dollars first (none are 0), then every other asset in which the owner has an account, by code.

    The amount of a pending transfer is subtracted from its source; only a payout's is also added, as on its way out.
    """
    found = {USD_ASSET_CODE: AssetBalance(USD_ASSET_CODE, USD_SCALE)}
    rows = (
        Account.objects.filter(owner_id=owner_id)
        .order_by("asset__code")
        .values_list("asset__code", "asset__scale", "kind")
        .annotate(
            amount=Sum(F("credits_posted") - F("debits_posted") - F("debits_pending")), coming=Sum("credits_pending")
        )
    )
    for code, scale, kind, amount, coming in rows:
        is_leaving = kind == AccountKind.PAYOUT_CLEARING
        found.setdefault(code, AssetBalance(code, scale)).by_kind[kind] += int(amount + coming * is_leaving)
    return list(found.values())
