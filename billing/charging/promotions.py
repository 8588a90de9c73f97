"""Given credit, as an account of its own: spent before money, never paid out or refunded as cash, gone when it expires.

    grant, redeem    promo_expense      -> customer_promotion
    draw             customer_promotion -> customer_available    right before a hold, in its transaction
    return_unused    customer_available -> customer_promotion    what a job drew and did not use
    expire_due       customer_promotion -> promo_expense

A job uses what it drew first and money after that; of what is refunded, money comes first, and what it
had drawn beyond its cost is given credit again. So a gift is spent before money, and nobody turns it into cash
by placing and cancelling jobs. The grant that expires first is drawn first, and the last drawn is given back first.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Sum

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, open_accounts
from billing.errors import AmountInvalid, PromoCodeRefused, PromotionConflict
from billing.fields import is_amount
from billing.models import Account, Hold, PromoCode, PromotionDraw, PromotionGrant, Settlement, Transfer
from billing.models.ledger import USD_ASSET_ID
from billing.money import AMOUNT_CHARACTERS_MAX
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from marketplace.foundation.exclusive import log_failures
from marketplace.foundation.ids import new_id

GRANTS_PER_DRAW_MAX: Final = 100
EXPIRED_PER_SWEEP_MAX: Final = 500
REFUNDS: Final = (TransferCode.DISPUTE_TO_CUSTOMER, TransferCode.FAULT_REFUND, TransferCode.COMPENSATION)


def grant(
    owner_id: UUID,
    amount: int,
    *,
    expires_at: datetime,
    reference: str,
    actor: str,
    asset_id: int = USD_ASSET_ID,
    code: PromoCode | None = None,
) -> PromotionGrant:
    """Give credit, once per reference; a repeat returns the first. Raises AmountInvalid, PromotionConflict."""
    if not is_amount(amount):
        raise AmountInvalid(value=str(amount)[:AMOUNT_CHARACTERS_MAX])
    with transaction.atomic():
        _lock_owner(owner_id)
        given = PromotionGrant.objects.filter(reference=reference).first()
        if given is not None:
            if (given.owner_id, given.asset_id, given.amount) != (owner_id, asset_id, amount):
                raise PromotionConflict(reference=reference)
            return given
        given = PromotionGrant.objects.create(
            owner_id=owner_id,
            asset_id=asset_id,
            amount=amount,
            left=amount,
            code=code,
            reference=reference,
            actor=actor[:120],
            expires_at=expires_at,
        )
        _post(given, AccountKind.PROMO_EXPENSE, AccountKind.CUSTOMER_PROMOTION, amount, TransferCode.PROMOTION)
        return given


def redeem(owner_id: UUID, code: str, *, actor: str) -> PromotionGrant:
    """Turn a code into credit. Raises PromoCodeRefused: unknown, over, used up, or used before by this organisation."""
    with transaction.atomic():
        # The code's row is locked: of many who want the last use, one gets it.
        row = PromoCode.objects.select_for_update().filter(code=code.strip().upper()[:40]).first()
        now = clock.now()
        if row is None or not row.is_active or row.valid_until <= now:
            raise PromoCodeRefused(why="there is no such code, or it is over")
        uses = row.grants.count()
        if uses >= row.uses_max:
            raise PromoCodeRefused(why="it is used up")
        own = row.grants.filter(owner_id=owner_id).count()
        if own >= row.uses_per_organisation_max:
            raise PromoCodeRefused(why="your organisation used it before")
        return grant(
            owner_id,
            row.amount,
            expires_at=now + timedelta(days=row.valid_days),
            reference=f"{row.code}/{owner_id}/{own + 1}",
            actor=actor,
            code=row,
        )


def spendable(owner_id: UUID, asset_id: int = USD_ASSET_ID, *, now: datetime | None = None) -> int:
    """Given credit that a hold placed now would take first."""
    return _sum(PromotionGrant.objects.filter(**_usable(owner_id, asset_id, now or clock.now())))


def draw(owner_id: UUID, job_id: UUID, amount: int, *, asset_id: int = USD_ASSET_ID) -> int:
    """Make given credit part of the balance, up to `amount`, for a hold that follows in the caller's transaction.

    Returns how much. Not idempotent: call it where the hold is decided, once.
    """
    if not spendable(owner_id, asset_id):  # the most have none: they shall not wait for one another
        return 0
    with transaction.atomic():
        _lock_owner(owner_id)
        drawn = 0
        grants = PromotionGrant.objects.filter(**_usable(owner_id, asset_id, clock.now()))
        for given in grants.order_by("expires_at", "created_at", "pk").select_for_update()[:GRANTS_PER_DRAW_MAX]:
            part = min(given.left, amount - drawn)
            if part <= 0:
                break
            PromotionGrant.objects.filter(pk=given.pk).update(left=F("left") - part)
            PromotionDraw.objects.create(grant=given, job_id=job_id, amount=part)
            drawn += part
        if drawn:
            _move(owner_id, asset_id, drawn, job_id=job_id)
        return drawn


def lock_job(job_id: UUID) -> None:
    """Before a refund moves the job's money: lock the grants before the accounts, in the same order as a draw."""
    owner_id = PromotionDraw.objects.filter(job_id=job_id).values_list("grant__owner_id", flat=True).first()
    if owner_id is not None:
        _lock_owner(owner_id)


def return_unused(job_id: UUID, *, spent: int) -> int:
    """Make given credit again what the job drew beyond `spent`, all that it costs its owner now; how much that was.

    In the transaction of the refund, after it and after `lock_job`. What returns to a grant that expired meanwhile is
    taken by the next sweep.
    """
    with transaction.atomic():
        draws = PromotionDraw.objects.filter(job_id=job_id, returned__lt=F("amount")).select_related("grant")
        rows = list(draws.order_by("-pk").select_for_update(of=("self",)))
        left = max(0, sum(row.amount - row.returned for row in rows) - spent)
        back = 0
        for row in rows:
            part = min(row.amount - row.returned, left - back)
            if part <= 0:
                break
            PromotionDraw.objects.filter(pk=row.pk).update(returned=F("returned") + part)
            PromotionGrant.objects.filter(pk=row.grant_id).update(left=F("left") + part)
            _move(row.grant.owner_id, row.grant.asset_id, part, job_id=job_id, back=True)
            back += part
        return back


def return_refunded(job_id: UUID) -> int:
    """The same after anything came back to the customer of a settled job, by a decision or as a fine's compensation.

    What it costs its owner now is read from the ledger, so that no two ways of getting it back miss each other.
    """
    charged = Settlement.objects.filter(job_id=job_id).aggregate(sum=Sum("charged"))["sum"]
    if charged is None:
        return 0
    held = Hold.objects.open().filter(job_id=job_id).aggregate(sum=Sum("amount"))["sum"] or 0  # it goes on
    back = Transfer.objects.filter(job_id=job_id, code__in=REFUNDS, credit__kind=AccountKind.CUSTOMER_AVAILABLE)
    refunded = back.aggregate(sum=Sum("amount"))["sum"] or 0
    return return_unused(job_id, spent=max(0, int(charged) + int(held) - int(refunded)))


def expire_due(now: datetime | None = None) -> int:
    """Withdraw given credit that was not used in time; returns the number of grants."""
    now = now or clock.now()
    frozen = Account.objects.filter(
        owner_id=OuterRef("owner_id"),
        asset_id=OuterRef("asset_id"),
        kind=AccountKind.CUSTOMER_PROMOTION,
        is_frozen=True,
    )
    due = PromotionGrant.objects.filter(~Exists(frozen), left__gt=0, expires_at__lte=now).order_by("expires_at")
    count = 0
    for owner_id, grant_id in list(due.values_list("owner_id", "pk")[:EXPIRED_PER_SWEEP_MAX]):
        with log_failures("Given credit could not be withdrawn.", grant_id=str(grant_id)):
            count += _expire(owner_id, grant_id)
    return count


def _expire(owner_id: UUID, grant_id: UUID) -> bool:
    with transaction.atomic():
        _lock_owner(owner_id)
        given = PromotionGrant.objects.select_for_update().get(pk=grant_id)
        if not given.left:
            return False
        kinds = AccountKind.CUSTOMER_PROMOTION, AccountKind.PROMO_EXPENSE
        _post(given, *kinds, given.left, TransferCode.PROMOTION_EXPIRED)
        given.left = 0
        given.save(update_fields=["left"])
        return True


def _usable(owner_id: UUID, asset_id: int, now: datetime) -> dict[str, object]:
    return {"owner_id": owner_id, "asset_id": asset_id, "left__gt": 0, "expires_at__gt": now}


def _sum(grants: object) -> int:
    return int(grants.aggregate(sum=Sum("left"))["sum"] or 0)  # type: ignore[attr-defined]


def _post(given: PromotionGrant, debit: AccountKind, credit: AccountKind, amount: int, code: TransferCode) -> None:
    names = [
        AccountName(kind, given.owner_id if kind == AccountKind.CUSTOMER_PROMOTION else None, asset_id=given.asset_id)
        for kind in (debit, credit)
    ]
    source, target = open_accounts(names)
    new = ledger.NewTransfer(source, target, amount, code, external_ref=given.reference[:200])
    ledger.post([new], group_id=new_id(), savepoint=False)


def _move(owner_id: UUID, asset_id: int, amount: int, *, job_id: UUID, back: bool = False) -> None:
    """Between the owner's given credit and its balance."""
    kinds = [AccountKind.CUSTOMER_PROMOTION, AccountKind.CUSTOMER_AVAILABLE]
    credit, balance = open_accounts([AccountName(kind, owner_id, asset_id=asset_id) for kind in kinds])
    if not back:
        new = ledger.NewTransfer(credit, balance, amount, TransferCode.PROMOTION, job_id=job_id)
        ledger.post([new], savepoint=False)
        return
    # A balance that a chargeback froze, too: this was never its owner's money, and the job has to end.
    new = ledger.NewTransfer(balance, credit, amount, TransferCode.PROMOTION, job_id=job_id)
    ledger.post_from_frozen(balance, [new], group_id=new_id())


def _lock_owner(owner_id: UUID) -> None:
    """One change of an owner's grants at a time, until the commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"promotions:{owner_id}"])
