"""Hold the ledger against every rail that is on, and against the coins of our keys on every chain.

What nothing explains stops payouts, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from billing.breaker import open_breaker
from billing.models import Difference, Position, Reconciliation
from billing.rails import registry
from billing.rails.errors import RailError
from billing.reconciliation.comparing import Comparison, TooManyMovements, compare
from marketplace.foundation import clock

ERROR_CHARACTERS_MAX: Final = 300
KEPT_FOR: Final = timedelta(days=400)
FORGOTTEN_PER_CALL_MAX: Final = 1_000
CORRECTIONS_LOCK: Final = 0x50_55_4B_43  # advisory: alone for an approval, shared by reports that begin

log = logging.getLogger(__name__)


def reconcile(*, reason: str) -> Reconciliation:
    """Compare, write the report down, and open the breaker for what is not explained; deposits and jobs go on.

    A rail that does not answer is named in the report: nothing is known of it, so the caller pays nothing through it.
    """
    started_at = _begin()
    found: list[Comparison] = []
    unanswered: dict[str, str] = {}
    for name in registry.payouts_on():  # outside of any transaction: these are calls
        try:
            found.append(compare(registry.open_payouts(name)))
        except (RailError, TooManyMovements) as error:
            unanswered[name] = str(error)[:ERROR_CHARACTERS_MAX]
            log.warning("A rail could not be reconciled. rail=%s error=%s", name, error)
    found += _compare_coins(unanswered)
    return _keep(Reconciliation(started_at=started_at, reason=reason, unanswered=unanswered), found)


def _begin() -> datetime:
    """The moment of the report: every correction that was decided before it is committed, and so is seen."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [CORRECTIONS_LOCK])
        return clock.now()


def _compare_coins(unanswered: dict[str, str]) -> list[Comparison]:
    """Of the keys that pay for gas, chain by chain. web3 is loaded where there is a chain only."""
    found: list[Comparison] = []
    for chain_id in sorted(chain["chain_id"] for chain in settings.SOUK_CHAINS):
        from billing.chain.errors import ChainError
        from billing.reconciliation.coins import compare_coins

        try:
            found.append(compare_coins(chain_id))
        except ChainError as error:
            unanswered[f"coins of chain {chain_id}"] = str(error)[:ERROR_CHARACTERS_MAX]
            log.warning("Coins could not be reconciled. chain_id=%s error=%s", chain_id, error)
    return found


def newest() -> Reconciliation | None:
    """The report that was written last."""
    return Reconciliation.objects.order_by("-started_at").first()


def show(report: Reconciliation) -> dict[str, Any]:
    """A report as JSON; amounts are strings, in base units."""
    positions = report.positions.order_by("pk").values("rail", "kind", "asset__code", "ledger", "outside")
    differences = report.differences.order_by("pk").values(
        "rail", "kind", "account_kind", "asset__code", "ref", "ledger", "outside", "explanation"
    )
    return {
        "id": str(report.pk),
        "started_at": report.started_at.isoformat(),
        "reason": report.reason,
        "is_clean": report.is_clean,
        "unexplained": report.unexplained,
        "unanswered": report.unanswered,
        "positions": [_as_json(row) for row in positions],
        "differences": [_as_json(row) for row in differences],
    }


def forget_old_reports() -> int:
    """Delete clean reports that are older than KEPT_FOR; those with a difference stay."""
    old = Reconciliation.objects.filter(
        started_at__lt=clock.now() - KEPT_FOR, unexplained=0, breakers=None
    ).values_list("pk", flat=True)[:FORGOTTEN_PER_CALL_MAX]
    return Reconciliation.objects.filter(pk__in=list(old)).delete()[0]


def _as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "asset" if name == "asset__code" else name: str(value) if isinstance(value, int) else value
        for name, value in row.items()
    }


def _keep(report: Reconciliation, found: list[Comparison]) -> Reconciliation:
    differences = [difference for comparison in found for difference in comparison.differences]
    unexplained = [difference for difference in differences if not difference.explanation]
    report.unexplained = len(unexplained)
    report.ended_at = clock.now()
    with transaction.atomic():
        report.save(force_insert=True)
        positions = [position for comparison in found for position in comparison.positions]
        for position in positions:
            position.reconciliation = report
        for difference in differences:
            difference.reconciliation = report
        Position.objects.bulk_create(positions)
        Difference.objects.bulk_create(differences)
        if unexplained:
            first = unexplained[0]
            open_breaker(
                f"{len(unexplained)} differences, the first: {first.kind} {first.rail} {first.ref}".strip(),
                reconciliation=report,
            )
    return report
