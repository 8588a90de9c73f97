"""A rail that pays nobody: for trying the marketplace out on one's own computer, and refused everywhere else.

It keeps its own books (FakeMovement), so that reconciliation has an outside to look at. What a destination is called
decides what becomes of a payout, as a payment processor's test numbers do:

    fake:NAME           arrives at once
    fake:slow:NAME      is on its way when it was sent, and has arrived when one looks again
    fake:refused:NAME   is refused
    fake:returned:NAME  arrives, and is found sent back when one looks again
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from django.db.models import Sum

from billing.account_kinds import AccountKind
from billing.books.deposits import RAIL_OPERATOR
from billing.models import Deposit, FakeMovement, Payout
from billing.rails.loopback import require_loopback
from billing.rails.payouts import Fate, Movement, Outcome, PayoutRail

ROWS_PER_FETCH: Final = 1_000
MIRROR: Final = AccountKind.OPERATOR_CASH
RAILS_OF_DEPOSITS: Final = (RAIL_OPERATOR, "fake")  # whose money is the operator's cash; "fake" is the pretended card
REFUSAL: Final = "The fake bank refuses this destination, as its name asks it to."
_DESTINATION: Final = re.compile(r"fake:(?:(slow|refused|returned):)?[A-Za-z0-9_.-]{1,64}")


class FakePayouts(PayoutRail):
    """Pays at once, in its own books only."""

    name: ClassVar[str] = "fake"

    def __init__(self) -> None:
        require_loopback("The fake payout rail")

    def check_destination(self, destination: str) -> str:
        destination = destination.strip()
        if not _DESTINATION.fullmatch(destination):
            raise ValueError("The fake rail pays to fake:NAME, such as fake:bob; NAME is letters, digits, _ . and -.")
        return destination

    def submit(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        accepted = [payout for payout in payouts if _manner(payout) != "refused"]
        FakeMovement.objects.bulk_create(
            [
                FakeMovement(ref=_ref(payout.pk), payout_id=payout.pk, asset_id=payout.asset_id, amount=-payout.amount)
                for payout in accepted
            ],
            ignore_conflicts=True,  # the payout's id is the idempotency key
        )
        return {str(payout.pk): _answer(payout, is_first=True) for payout in payouts}

    def find(self, payouts: Sequence[Payout]) -> dict[str, Outcome]:
        refs = [_ref(payout.pk) for payout in payouts]
        known = set(FakeMovement.objects.filter(ref__in=refs).values_list("payout_id", flat=True))
        found = {}
        for payout in payouts:
            is_known = payout.pk in known or _manner(payout) == "refused"
            found[str(payout.pk)] = _answer(payout, is_first=False) if is_known else Outcome(Fate.ABSENT)
        returned = [payout for payout in payouts if found[str(payout.pk)].fate == Fate.RETURNED]
        FakeMovement.objects.bulk_create(
            [
                FakeMovement(
                    ref=_return_ref(payout.pk), payout_id=payout.pk, asset_id=payout.asset_id, amount=payout.amount
                )
                for payout in returned
            ],
            ignore_conflicts=True,
        )
        return found

    def positions(self) -> dict[tuple[AccountKind, int], int]:
        """What the operator recorded as deposited, and what our own books show as paid out."""
        totals: dict[tuple[AccountKind, int], int] = {}
        deposits = Deposit.objects.filter(rail__in=RAILS_OF_DEPOSITS)
        for rows in (deposits.order_by().values("asset_id"), FakeMovement.objects.order_by().values("asset_id")):
            for row in rows.annotate(total=Sum("amount")):
                key = (MIRROR, row["asset_id"])
                totals[key] = totals.get(key, 0) + int(row["total"])
        return totals

    def movements(self, since: datetime) -> Iterator[Movement]:
        deposits = Deposit.objects.filter(rail__in=RAILS_OF_DEPOSITS, created_at__gte=since).order_by("created_at")
        for deposit in deposits.iterator(chunk_size=ROWS_PER_FETCH):
            yield Movement(deposit.reference, MIRROR, deposit.asset_id, deposit.amount, deposit.created_at)
        for row in FakeMovement.objects.filter(at__gte=since).order_by("at").iterator(chunk_size=ROWS_PER_FETCH):
            yield Movement(row.ref, MIRROR, row.asset_id, row.amount, row.at)

    def payout_id_of(self, ref: str) -> str:
        return ref.removeprefix("fake_")


def _answer(payout: Payout, *, is_first: bool) -> Outcome:
    manner = _manner(payout)
    if manner == "refused":
        return Outcome(Fate.FAILED, message=REFUSAL)
    if manner == "slow" and is_first:
        return Outcome(Fate.UNDER_WAY, external_id=_ref(payout.pk))
    if manner == "returned" and not is_first:
        return Outcome(Fate.RETURNED, external_id=_return_ref(payout.pk), message="The fake bank sent it back.")
    return Outcome(Fate.CONFIRMED, external_id=_ref(payout.pk))


def _manner(payout: Payout) -> str:
    match = _DESTINATION.fullmatch(payout.destination)
    return (match[1] or "") if match else "refused"


def _ref(payout_id: UUID) -> str:
    return f"fake_{payout_id}"


def _return_ref(payout_id: UUID) -> str:
    return f"fake_{payout_id}_back"
