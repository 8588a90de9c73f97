"""Is everything there that people are owed? Public figures: sums by kind, no names, nothing about anybody.

    owed to customers + owed to providers + in dispute + the platform's own = Stripe + escrow + cash

The left side and the ledger's mirrors are of one moment. Beside each mirror stands what the outside reported when it
was asked last (reconciliation), so that nobody has to believe the mirror.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from django.core.cache import cache
from redis.exceptions import RedisError

from billing import breaker
from billing.account_kinds import AccountKind
from billing.books.balances import balances_by_kind
from billing.models import Asset, DailyRoot, Transfer
from billing.reconciliation.reconciling import newest
from marketplace.foundation import clock

FRESH_SECONDS: Final = 60
STALE_SECONDS: Final = 3600  # shown while somebody else is adding up
ADDING_UP_SECONDS_MAX: Final = 30
_FRESH_KEY, _STALE_KEY, _LOCK_KEY = "solvency", "solvency.stale", "solvency.lock"

CUSTOMERS: Final = frozenset(
    {
        AccountKind.CUSTOMER_AVAILABLE,
        AccountKind.JOB_HOLD,
        AccountKind.CUSTOMER_PROMOTION,
        AccountKind.WALLET_AVAILABLE,
        AccountKind.WALLET_HELD,
    }
)
PROVIDERS: Final = frozenset(
    {
        AccountKind.PROVIDER_PENDING,
        AccountKind.PROVIDER_AVAILABLE,
        AccountKind.PROVIDER_RESERVE,
        AccountKind.PROVIDER_STAKE,
        AccountKind.PAYOUT_CLEARING,
        AccountKind.WALLET_PENDING,
        AccountKind.WALLET_STAKE,
    }
)
MIRRORS: Final = frozenset(
    {
        AccountKind.STRIPE_BALANCE,
        AccountKind.STRIPE_IN_TRANSIT,
        AccountKind.CHAIN_ESCROW,
        AccountKind.CHAIN_HOT_WALLET,
        AccountKind.OPERATOR_CASH,
    }
)


@dataclass
class AssetSolvency:
    """One asset, in base units."""

    customers: int = 0
    providers: int = 0
    disputed: int = 0
    own: dict[str, int] = field(default_factory=dict)  # fees, pools and expenses, by kind
    mirrors: dict[str, int] = field(default_factory=dict)

    @property
    def owed(self) -> int:
        return self.customers + self.providers + self.disputed

    @property
    def held(self) -> int:
        return sum(self.mirrors.values())

    @property
    def is_balanced(self) -> bool:
        """The equation above holds, to the unit."""
        return self.owed + sum(self.own.values()) == self.held


def add_kind(one: AssetSolvency, kind: AccountKind, balance: int, *, is_coin: bool) -> None:
    """Put the accounts of one kind on their side; `is_coin`: of a chain's own coin, in which its gas is paid."""
    if kind in CUSTOMERS:
        one.customers += balance
    elif kind in PROVIDERS:
        one.providers += balance
    elif kind == AccountKind.DISPUTED:
        one.disputed += balance
    elif kind == AccountKind.OPERATOR_CASH and is_coin:
        one.own[kind] = balance  # what the operator put in for gas: no bank has it, the keys' wallets do
    elif kind in MIRRORS:
        one.mirrors[kind] = -balance
    else:
        one.own[kind] = balance


def cached_solvency() -> dict[str, Any]:
    """The report, at most a minute old; one process adds up, the others show what was there before."""
    try:
        found = cache.get(_FRESH_KEY)
        if found is not None:
            return dict(found)
        if not cache.add(_LOCK_KEY, 1, ADDING_UP_SECONDS_MAX):
            stale = cache.get(_STALE_KEY)
            if stale is not None:
                return dict(stale)
        report = solvency()
        cache.set(_FRESH_KEY, report, FRESH_SECONDS)
        cache.set(_STALE_KEY, report, STALE_SECONDS)
        cache.delete(_LOCK_KEY)
    except (RedisError, OSError):
        return solvency()
    return report


def solvency() -> dict[str, Any]:
    """The report as JSON: amounts are strings of base units."""
    scales = dict(Asset.objects.values_list("code", "scale"))
    outside = _outside()
    report, root = newest(), DailyRoot.objects.order_by("-day").first()
    head = Transfer.objects.filter(hash__isnull=False).order_by("-seq").values("seq", "hash").first()
    return {
        "at": clock.now().isoformat(timespec="seconds"),
        "assets": [_as_json(code, scales[code], one, outside) for code, one in sorted(_add_up().items())],
        "reconciliation": report
        and {
            "at": report.started_at.isoformat(timespec="seconds"),
            "unexplained": report.unexplained,
            "silent_rails": sorted(report.unanswered),
        },
        "payouts_stopped": breaker.is_open(),
        "daily_root": root
        and {
            "day": root.day.isoformat(),
            "root": root.root,
            "transfers": root.transfers,
            "first_seq": root.first_seq,
            "last_seq": root.last_seq,
        },
        "hash_chain_head": head and {"seq": head["seq"], "hash": head["hash"]},
    }


def _add_up() -> dict[str, AssetSolvency]:
    coins = set(Asset.objects.filter(kind=Asset.Kind.NATIVE).values_list("code", flat=True))
    found: dict[str, AssetSolvency] = defaultdict(AssetSolvency)
    for row in balances_by_kind():
        add_kind(found[row.asset], AccountKind(row.kind), row.balance, is_coin=row.asset in coins)
    return found


def _outside() -> dict[tuple[str, str], tuple[str, str]]:
    """(asset, mirror) -> what the outside had, and when it reported that."""
    report = newest()
    if report is None:
        return {}
    at = report.started_at.isoformat(timespec="seconds")
    rows = report.positions.values_list("asset__code", "kind", "outside")
    return {(code, kind): (str(amount), at) for code, kind, amount in rows}


def _as_json(
    code: str, scale: int, one: AssetSolvency, outside: dict[tuple[str, str], tuple[str, str]]
) -> dict[str, Any]:
    return {
        "asset": code,
        "scale": scale,
        "owed_to_customers": str(one.customers),
        "owed_to_providers": str(one.providers),
        "in_dispute": str(one.disputed),
        "own": {kind: str(amount) for kind, amount in sorted(one.own.items())},
        "own_total": str(sum(one.own.values())),
        "held": str(one.held),
        "mirrors": [
            {
                "kind": kind,
                "ledger": str(amount),
                "outside": outside.get((code, kind), (None, None))[0],
                "outside_at": outside.get((code, kind), (None, None))[1],
            }
            for kind, amount in sorted(one.mirrors.items())
        ],
        "is_balanced": one.is_balanced,
        "is_covered": one.held >= one.owed,
    }
