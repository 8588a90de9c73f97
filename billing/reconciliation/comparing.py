"""One rail against the ledger: sums by mirror, movements by reference, and what may explain a difference.

    position     what the outside has now        -(balance of the mirror), as the ledger has it
    movement     one change outside, by its ref  the mirror's transfers with that external_ref, added up

A difference is explained while the two sides are known to be of different moments: a payout that is under way, an event
that is stored and not processed, or one so young that its event may still be on its way. Nothing else explains one: it
stays until two operators correct it (correcting.py), or the outside reverses it. The correction of a sum has a
reference of our own, which no movement outside has: it counts in the sum only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import Q

from billing.account_kinds import AccountKind
from billing.books.balances import balance
from billing.models import Account, Difference, Payout, Position
from billing.models.corrections import OWN_REF
from billing.rails import registry
from billing.rails.payouts import Movement, PayoutRail
from billing.states import PAYOUT_STATES_OPEN
from marketplace.foundation import clock

WINDOW: Final = timedelta(days=3)  # how far back movements are held against each other, one by one
OVERLAP: Final = timedelta(hours=6)  # by which one side's clock may lag behind the other's at the window's edge
LATE: Final = timedelta(days=60)  # how far back a movement is looked for that the ledger learned of late
YOUNG: Final = timedelta(minutes=15)  # an event may take so long to be sent, stored and processed
MOVEMENTS_MAX: Final = 500_000  # of one rail in one window: more is an error, not half a comparison
TRIES_MAX: Final = 3
DIFFERENCES_MAX: Final = 1_000  # rows kept of one rail; the first ones show what happened

Key = tuple[AccountKind, int]

_MOVED = """
    SELECT t.external_ref, t.asset_id, sum(CASE WHEN t.debit_id = a.id THEN t.amount ELSE -t.amount END),
           min(t.created_at)
    FROM billing_account a JOIN billing_transfer t ON a.id IN (t.debit_id, t.credit_id)
    WHERE a.kind = %s AND a.owner_id IS NULL AND t.mode IN ('single', 'post') AND t.created_at >= %s
        AND NOT starts_with(t.external_ref, %s)
    GROUP BY 1, 2
"""


class TooManyMovements(Exception):
    """A rail reported more movements in one window than can be compared at once."""


@dataclass
class Seen:
    """Both sides' amounts for one reference."""

    ledger: int = 0
    outside: int = 0
    at: datetime | None = None  # the older of the two sides
    moved_at: datetime | None = None  # outside


@dataclass
class Comparison:
    """What was found about one rail."""

    positions: list[Position] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def compare(rail: PayoutRail) -> Comparison:
    """Hold one rail's positions and recent movements against the ledger; raises RailError, TooManyMovements.

    What moves while we look is distinguished by its time; a clock that is off (a chain's may be ahead of ours) can
    still make a sum look wrong, so one is believed to be wrong when it is wrong TRIES_MAX times. What one look
    reported is in the sums of the next, whatever its time.
    """
    reported: set[str] = set()
    for _ in range(TRIES_MAX):
        found = _compare_once(rail, reported)
        if not any(each.kind == Difference.Kind.POSITION for each in found.differences):
            break
    return found


def _compare_once(rail: PayoutRail, reported: set[str]) -> Comparison:
    # 1. The outside, outside of any transaction: its sums first, then what moved until after that.
    now = clock.now()
    since = now - WINDOW
    positions = {**_unreported(rail), **rail.positions()}
    outside = _movements_outside(rail, since - OVERLAP)
    # 2. The ledger, all of one moment.
    with one_moment():
        mirrored = {(kind, asset_id): -balance(None, kind, asset_id=asset_id) for kind, asset_id in positions}
        seen = _seen(set(positions), outside, since)
    _look_further_back(rail, seen, now)
    # 3. What each reference differs by is taken out of the sums; what remains has no reference.
    found = Comparison()
    residual = {key: amount - mirrored[key] for key, amount in positions.items()}
    for (kind, asset_id, ref), pair in sorted(seen.items(), key=lambda item: str(item[0])):
        is_in_position = pair.moved_at is not None and (pair.moved_at < now or ref in reported)
        residual[kind, asset_id] -= (pair.outside if is_in_position else 0) - pair.ledger
        if pair.ledger != pair.outside and len(found.differences) < DIFFERENCES_MAX:
            found.differences.append(_difference(rail, (kind, asset_id, ref), pair, now))
    reported.update(movement.ref for movement in outside)
    for (kind, asset_id), amount in sorted(positions.items()):
        found.positions.append(
            Position(rail=rail.name, kind=kind, asset_id=asset_id, ledger=mirrored[kind, asset_id], outside=amount)
        )
        if residual[kind, asset_id]:
            found.differences.append(
                Difference(
                    rail=rail.name,
                    kind=Difference.Kind.POSITION,
                    account_kind=kind,
                    asset_id=asset_id,
                    outside=residual[kind, asset_id],
                )
            )
    return found


def _unreported(rail: PayoutRail) -> dict[Key, int]:
    """The rail's mirrors in the ledger, at nothing: what it does not report, it does not have."""
    mirror = registry.row_of(rail.name).mirror
    accounts = Account.objects.filter(kind=mirror, owner_id=None)
    return {(mirror, asset_id): 0 for asset_id in accounts.values_list("asset_id", flat=True)}


@contextmanager
def one_moment() -> Iterator[None]:
    """A snapshot that no commit changes while we look; inside an outer transaction, that transaction's view."""
    is_outermost = not connection.in_atomic_block
    with transaction.atomic():
        if is_outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def _movements_outside(rail: PayoutRail, since: datetime) -> list[Movement]:
    movements: list[Movement] = []
    for movement in rail.movements(since):
        movements.append(movement)
        if len(movements) > MOVEMENTS_MAX:
            raise TooManyMovements(f"{rail.name} had more than {MOVEMENTS_MAX} movements since {since:%F %T}")
    return movements


def _seen(keys: set[Key], outside: list[Movement], since: datetime) -> dict[tuple[AccountKind, int, str], Seen]:
    """Both sides by mirror, asset and reference; a pair at the window's edge is looked at where either side is in."""
    seen: dict[tuple[AccountKind, int, str], Seen] = defaultdict(Seen)
    for movement in outside:
        pair = seen[movement.kind, movement.asset_id, movement.ref]
        pair.outside += movement.amount
        pair.moved_at = pair.at = min(filter(None, [pair.at, movement.at]))
    for kind in sorted({kind for kind, _ in keys}):
        for ref, asset_id, amount, at in _moved_inside(kind, since - OVERLAP):
            pair = seen[kind, asset_id, ref]
            pair.ledger += amount
            pair.at = min(filter(None, [pair.at, at]))
    return {key: pair for key, pair in seen.items() if key[:2] in keys and pair.at and pair.at >= since}


def _look_further_back(rail: PayoutRail, seen: dict[tuple[AccountKind, int, str], Seen], now: datetime) -> None:
    """Whoever was away for days books what happened then: the movement outside is older than the window."""
    late = {key for key, pair in seen.items() if pair.ledger and not pair.outside and not _young(pair, now)}
    if not late:
        return
    for movement in _movements_outside(rail, now - LATE):
        key = (movement.kind, movement.asset_id, movement.ref)
        if key in late:
            pair = seen[key]
            pair.outside += movement.amount
            pair.moved_at = min(filter(None, [pair.moved_at, movement.at]))


def _moved_inside(kind: AccountKind, since: datetime) -> list[tuple[str, int, int, datetime]]:
    with connection.cursor() as cursor:
        cursor.execute(_MOVED, [str(kind), since, OWN_REF])
        return [(row[0], row[1], int(row[2]), row[3]) for row in cursor.fetchall()]


def _difference(rail: PayoutRail, key: tuple[AccountKind, int, str], pair: Seen, now: datetime) -> Difference:
    kind, asset_id, ref = key
    if not pair.ledger:
        of_kind, explanation = Difference.Kind.MISSING_INSIDE, _explain_missing_inside(rail, ref, pair, now)
    elif not pair.outside:
        of_kind = Difference.Kind.MISSING_OUTSIDE
        explanation = _young(pair, now)
    else:
        of_kind, explanation = Difference.Kind.AMOUNT, ""
    return Difference(
        rail=rail.name,
        kind=of_kind,
        account_kind=kind,
        asset_id=asset_id,
        ref=ref[:200],
        ledger=pair.ledger,
        outside=pair.outside,
        explanation=explanation,
    )


def _explain_missing_inside(rail: PayoutRail, ref: str, pair: Seen, now: datetime) -> str:
    """Why the ledger may not have yet what happened outside; empty without a reason."""
    under_way = Payout.objects.filter(rail=rail.name, state__in=PAYOUT_STATES_OPEN, amount=-pair.outside)
    if pair.outside < 0 and under_way.filter(_is_of(rail, ref)).exists():
        return "a payout that is under way"
    return rail.explain(ref) or _young(pair, now)


def _is_of(rail: PayoutRail, ref: str) -> Q:
    """Payouts that a reference names: by what the rail called it, or by our id in it."""
    named = Q(external_id=ref)
    tail = rail.payout_id_of(ref)
    return named | Q(pk=tail) if len(tail) == 36 and tail.count("-") == 4 else named


def _young(pair: Seen, now: datetime) -> str:
    return "so young that its event may be on its way" if pair.at and pair.at > now - YOUNG else ""
