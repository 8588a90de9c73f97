"""Reserved payouts are handed to their rail, outside of any transaction; each leaves once, whoever dies when.

    1. look up   those that were submitted before: the outcome is unknown, so the rail is asked before anything is sent
    2. claim     of the reserved ones as many as the rail takes at a time become submitted, and are committed: from here
                 on they may be out
    3. submit    these, and those that the rail never received; the payout's id is the idempotency key
    4. apply     what the rail reports of each, of those that arrived in one transaction; then 2 again, while payouts
                 may leave

Dying after 2 or 3 leaves submitted payouts; the call is made again and begins with 1. Dying in 4 leaves the same.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, TextField, Value
from django.db.models.functions import Cast, Concat

from billing.breaker import require_closed
from billing.dispatch import handles
from billing.models import Payout
from billing.payouts.outcomes import apply_outcomes
from billing.payouts.paying import PAYOUTS_PER_CALL_MAX, SUBMIT, enqueue
from billing.rails import registry
from billing.rails.errors import RailError
from billing.rails.payouts import Fate, Outcome, PayoutRail
from billing.states import PayoutState
from marketplace.foundation import clock
from marketplace.foundation.models import OutboxMessage
from marketplace.foundation.states import advance_all

FOLLOW_EVERY: Final = timedelta(minutes=2)  # how often a rail is asked about one payout that is under way
RETURNS_WATCHED: Final = timedelta(days=14)  # how long after its arrival a payout may come back unasked
RETURNS_EVERY: Final = timedelta(hours=12)
FOLLOWED_PER_RAIL_MAX: Final = 200
FOLLOWED_AT_ONCE_MAX: Final = 20_000  # the scheduled look finds the rest
LOST_AFTER: Final = timedelta(minutes=10)  # a reserved payout whose call ended without it is called for again

log = logging.getLogger(__name__)


@handles(SUBMIT)
def submit_batch(message: OutboxMessage) -> str:
    """Steps 1 to 4 for one batch; raises RailError, RailUnknown or PayoutsStopped to be called again."""
    require_closed()  # before anything is claimed: a stopped payout stays reserved, and is sent when all is well
    name = message.payload["rail"]
    rail, at_a_time = registry.open_payouts(name), registry.row_of(name).at_a_time
    batch = Payout.objects.filter(batch_id=message.payload["batch_id"], rail=name).order_by("created_at", "pk")
    unknown = list(batch.filter(state=PayoutState.SUBMITTED)[:PAYOUTS_PER_CALL_MAX])
    fresh = list(batch.filter(state=PayoutState.RESERVED)[:PAYOUTS_PER_CALL_MAX])
    found = rail.find(unknown) if unknown else {}
    apply_outcomes(unknown, found)
    waiting = [payout for payout in unknown if _fate(found, payout) == Fate.ABSENT] + fresh
    for start in range(0, len(waiting), at_a_time):
        _submit(rail, waiting[start : start + at_a_time])
    return str(len(fresh + unknown))


def follow_payouts() -> int:
    """Ask each rail what became of the payouts that are under way, and of those that arrived lately; how many moved."""
    heal_lost()
    return sum(_follow_rail(name) for name in registry.payouts_on())


def follow_at_once(rail: PayoutRail, asset_id: int) -> int:
    """Ask one rail now about its payouts of one asset: called by whoever knows that something happened there.

    The same as the scheduled look, without its pause; how many moved.
    """
    waiting = Payout.objects.filter(rail=rail.name, asset_id=asset_id, state=PayoutState.SUBMITTED)
    moved = 0
    for start in range(0, FOLLOWED_AT_ONCE_MAX, FOLLOWED_PER_RAIL_MAX):
        payouts = list(waiting.order_by("created_at", "pk")[start - moved : start - moved + FOLLOWED_PER_RAIL_MAX])
        if not payouts:
            break
        moved += _ask(rail, payouts)
    return moved


def heal_lost() -> int:
    """Write down a new call for payouts whose own has failed for good; the new one begins with a look-up, too."""
    waiting = OutboxMessage.objects.filter(kind=SUBMIT, state=OutboxMessage.State.WAITING)
    with transaction.atomic():
        old = Payout.objects.filter(
            ~Exists(waiting.filter(business_key=Concat(Value(f"{SUBMIT}:"), Cast(OuterRef("batch_id"), TextField())))),
            Q(state=PayoutState.RESERVED) | Q(state=PayoutState.SUBMITTED, checked_at=None),
            created_at__lt=clock.now() - LOST_AFTER,
        )
        lost = list(old.select_for_update(skip_locked=True).order_by("created_at")[:PAYOUTS_PER_CALL_MAX])
        enqueue(lost)
    return len(lost)


def _submit(rail: PayoutRail, payouts: list[Payout]) -> None:
    """Hand over those of these that are still ours to send, unless payouts were stopped meanwhile."""
    require_closed()
    absent = [payout for payout in payouts if payout.state == PayoutState.SUBMITTED]
    mine = absent + _claim([payout for payout in payouts if payout.state == PayoutState.RESERVED])
    if mine:
        apply_outcomes(mine, rail.submit(mine))


def _claim(payouts: list[Payout]) -> list[Payout]:
    """Those that no other worker has."""
    return advance_all(payouts, PayoutState.SUBMITTED, reason="submitted", only_from=[PayoutState.RESERVED])


def _fate(outcomes: dict[str, Outcome], payout: Payout) -> Fate | None:
    outcome = outcomes.get(str(payout.pk))
    return outcome.fate if outcome else None


def _follow_rail(name: str) -> int:
    now = clock.now()
    under_way = Q(state=PayoutState.SUBMITTED) & (Q(checked_at=None) | Q(checked_at__lt=now - FOLLOW_EVERY))
    arrived = Q(state=PayoutState.CONFIRMED, closed_at__gt=now - RETURNS_WATCHED, checked_at__lt=now - RETURNS_EVERY)
    at_the_bank = Q(state=PayoutState.CONFIRMED, bank_leg__next_at__lte=now)  # refused there, and due for another try
    moved = 0
    for which in (under_way, at_the_bank, arrived):
        payouts = list(Payout.objects.filter(which, rail=name).order_by("checked_at")[:FOLLOWED_PER_RAIL_MAX])
        if payouts:
            moved += _ask(registry.open_payouts(name), payouts)
    return moved


def _ask(rail: PayoutRail, payouts: list[Payout]) -> int:
    try:
        outcomes = rail.find(payouts)
    except RailError as error:
        log.warning("A rail could not be asked about payouts. rail=%s error=%s", rail.name, error)
        return 0
    return apply_outcomes(payouts, outcomes)
