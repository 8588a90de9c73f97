"""Spend limits: of an organisation and of each member, a month and a job; checked at submit, under a lock.

    commit     submit: the job's cap counts from now on      raises SpendLimitReached
    enlarge    resume: its cap was raised                    raises SpendLimitReached
    conclude   end: what it did cost counts instead, in the month in which it ended
    bounds     calls of others' endpoints: how much more may be given out to spend

What is used = the caps of the jobs that live + what those cost that ended this month + what an app above this one
counts besides (`when_counted`: calls of others' endpoints). So a limit cannot be overrun by
jobs that are under way, and a month starts with what still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, Sum

from billing.errors import AmountInvalid, SpendLimitReached
from billing.fields import AMOUNT_MAX
from billing.models import Commitment, Settlement, SpendLimit
from billing.models.limits import Period
from billing.money import format_usd
from billing.notices import alerts, mailing
from marketplace.foundation import clock

Used = Callable[[UUID, UUID | None, datetime, datetime], int]
Whose = tuple[UUID, UUID | None]  # an owner, and a member of theirs or all of them

_used_besides: Final[list[Used]] = []

ALERT_PERCENTS: Final = (50, 80, 100)
MONTHS_A_YEAR: Final = 12


@dataclass(frozen=True)
class Standing:
    """The use of one limit now, in micro-USD; `used` and `left` of a limit a job are what one may cost."""

    limit: SpendLimit
    used: int
    left: int
    resets_at: datetime | None

    @property
    def reached_percents(self) -> list[int]:
        """Which of the marks have been passed."""
        return [each for each in ALERT_PERCENTS if self.limit.amount and self.used * 100 >= each * self.limit.amount]


def when_counted(used: Used) -> None:
    """Register what counts besides jobs: micro-USD of an owner, or of one member of theirs, between two moments."""
    if used not in _used_besides:
        _used_besides.append(used)


def bounds(
    owner_ids: Collection[UUID], member_ids: Collection[UUID], *, returned: Callable[[], Mapping[Whose, int]]
) -> dict[Whose, int]:
    """(owner, member) -> the least that their limits leave, for those of these that have one; None: of the owner.

    `returned`: what of the use is about to be given back, and so does not count. A limit a job bounds what is given out
    at once. In a query where nobody has a limit.
    """
    rows = list(SpendLimit.objects.filter(Q(member_id=None) | Q(member_id__in=member_ids), owner_id__in=owner_ids))
    back = returned() if rows else {}
    left: dict[Whose, int] = {}
    for limit in rows:
        whose = (limit.owner_id, limit.member_id)
        standing = standing_of(limit)
        room = standing.left
        if standing.resets_at is not None:  # subtracted before the rest is cut off at zero
            room = max(0, limit.amount - standing.used + back.get(whose, 0))
        left[whose] = min(room, left.get(whose, AMOUNT_MAX))
    return left


def hold(owner_ids: Collection[UUID]) -> None:
    """Until the commit nobody else decides under the limits of these owners; those without limits are not held."""
    limited = SpendLimit.objects.filter(owner_id__in=owner_ids).values_list("owner_id", flat=True)
    for owner_id in limited.order_by("owner_id").distinct():
        _lock_owner(owner_id)


def check(owner_id: UUID, member_id: UUID | None, amount: int, *, now: datetime | None = None) -> None:
    """Raise SpendLimitReached where this much more is too much; it only reads, and `commit` enforces."""
    for standing in standings(owner_id, member_id, now=now):
        if amount > standing.left:
            raise _reached(standing, amount)


def commit(*, job_id: UUID, owner_id: UUID, member_id: UUID | None, amount: int) -> Commitment:
    """Count the job's cap against every limit, in the transaction that submits it; two at once cannot both pass."""
    with transaction.atomic():
        _lock_owner(owner_id)
        present = Commitment.objects.filter(job_id=job_id).first()
        if present is not None:
            return present
        check(owner_id, member_id, amount)
        made = Commitment.objects.create(job_id=job_id, owner_id=owner_id, member_id=member_id, amount=amount)
        _notify(owner_id, member_id)
        return made


def enlarge(job_id: UUID, *, amount: int, member_id: UUID | None = None) -> None:
    """The job's cap is this from now on. Raises SpendLimitReached; a job from before there were limits has none.

    It counts against `member_id`, who asks for it, as if they had launched it: all of it, so that nobody spends more
    than they may through a colleague's job. None: an operator asks, and it stays whose it was.
    """
    with transaction.atomic():
        row = Commitment.objects.filter(job_id=job_id, closed_at=None).first()
        if row is None:
            return
        _lock_owner(row.owner_id)
        row = Commitment.objects.select_for_update().get(job_id=job_id)
        before, row.member_id = row.member_id, member_id or row.member_id
        for standing in standings(row.owner_id, row.member_id):
            is_new = standing.limit.member_id is not None and row.member_id != before
            more = amount if standing.limit.period == Period.JOB or is_new else amount - row.amount
            if more > standing.left:
                raise _reached(standing, more)
        row.amount = amount
        row.save(update_fields=["amount", "member_id"])
        _notify(row.owner_id, row.member_id)


def conclude(job_id: UUID, *, charged: int | None = None) -> None:
    """The job has ended: what its settlement charged counts instead of its cap; a repeat changes nothing.

    A charge in a token counts as the same part of the cap as it is of what was held. `charged`: of a job that the
    ledger does not settle, in micro-USD.
    """
    row = Commitment.objects.filter(job_id=job_id, closed_at=None).first()
    if row is None:
        return
    if charged is None:
        settled = list(Settlement.objects.filter(job_id=job_id))
        spent = sum(int(each.charged) for each in settled)
        # Of a job that was settled in parts: in dollars, or as its caller passes it.
        charged = -(-row.amount * spent // int(settled[0].held)) if len(settled) == 1 else spent
    Commitment.objects.filter(job_id=job_id, closed_at=None).update(charged=charged, closed_at=clock.now())


def standings(owner_id: UUID, member_id: UUID | None, *, now: datetime | None = None) -> list[Standing]:
    """The limits that a job of this member would count against, with the use of each."""
    applies = SpendLimit.objects.filter(Q(member_id=None) | Q(member_id=member_id), owner_id=owner_id)
    return [standing_of(limit, now=now) for limit in applies.order_by("period", "member_id")]


def standing_of(limit: SpendLimit, *, now: datetime | None = None) -> Standing:
    """The use of one limit."""
    if limit.period == Period.JOB:
        return Standing(limit, 0, limit.amount, None)
    start, end = month_of(now or clock.now())
    rows = Commitment.objects.filter(owner_id=limit.owner_id)
    if limit.member_id is not None:
        rows = rows.filter(member_id=limit.member_id)
    sums = rows.aggregate(
        open=Sum("amount", filter=Q(closed_at=None)),
        charged=Sum("charged", filter=Q(closed_at__gte=start, closed_at__lt=end)),
    )
    used = int(sums["open"] or 0) + int(sums["charged"] or 0)
    used += sum(count(limit.owner_id, limit.member_id, start, end) for count in _used_besides)
    return Standing(limit, used, max(0, limit.amount - used), end)


def set_limit(owner_id: UUID, *, member_id: UUID | None, period: Period | str, amount: int, actor: str) -> SpendLimit:
    """One limit of each kind; setting it again changes it, from the next job on. Raises AmountInvalid."""
    if not 0 <= amount <= AMOUNT_MAX:
        raise AmountInvalid(value=str(amount))
    with transaction.atomic():
        _lock_owner(owner_id)
        limit, _ = SpendLimit.objects.update_or_create(
            owner_id=owner_id,
            member_id=member_id,
            period=Period(period),
            defaults={"amount": amount, "set_by": actor[:120]},
        )
        return limit


def remove_limit(owner_id: UUID, limit_id: UUID) -> bool:
    """Whether there was one."""
    return SpendLimit.objects.filter(owner_id=owner_id, pk=limit_id).delete()[0] == 1


def month_of(moment: datetime) -> tuple[datetime, datetime]:
    """The first moment of its month in UTC, and that of the next."""
    moment = moment.astimezone(UTC)
    start = datetime(moment.year, moment.month, 1, tzinfo=UTC)
    years, month = divmod(moment.month, MONTHS_A_YEAR)
    return start, datetime(moment.year + years, month + 1, 1, tzinfo=UTC)


def _reached(standing: Standing, amount: int) -> SpendLimitReached:
    limit = standing.limit
    whose = "organisation" if limit.member_id is None else "member"
    resets = "" if standing.resets_at is None else f", and starts anew on {standing.resets_at:%Y-%m-%d}"
    return SpendLimitReached(
        whose=whose,
        period=limit.period,
        limit=format_usd(limit.amount),
        used=format_usd(standing.used),
        left=format_usd(standing.left),
        needed=format_usd(amount),
        resets=resets,
        limit_usd_micros=str(limit.amount),
        used_usd_micros=str(standing.used),
        left_usd_micros=str(standing.left),
        needed_usd_micros=str(amount),
        resets_at=standing.resets_at.isoformat() if standing.resets_at else None,
    )


def _notify(owner_id: UUID, member_id: UUID | None) -> None:
    """Raise an alert for each mark that was passed, once a month and limit, and mail the highest to whom it limits."""
    for standing in standings(owner_id, member_id):
        if standing.resets_at is None:
            continue
        for percent in standing.reached_percents:
            message = f"{percent} % of a spend limit of {format_usd(standing.limit.amount)} a month is used."
            key = _mark(standing, percent)
            alerts.raise_once(key, kind="spend_limit", subject=owner_id, message=message, severity=alerts.Severity.INFO)
        if standing.reached_percents:
            _mail(standing, max(standing.reached_percents))


def _mail(standing: Standing, percent: int) -> None:
    limit, whose = standing.limit, "your organisation"
    recipients = mailing.owners_of(limit.owner_id)
    if limit.member_id is not None:
        recipients, whose = recipients | {limit.member_id}, "a member of your organisation"
    text = (
        f"Of the {format_usd(limit.amount)} that {whose} may spend a month, {format_usd(standing.used)} are spent or"
        f" set aside for jobs under way. {format_usd(standing.left)} are left until {standing.resets_at:%Y-%m-%d}; a"
        " job whose cap is above that is refused."
    )
    mailing.notify(recipients, _mark(standing, percent), subject=f"{percent} % of a spend limit is used", text=text)


def _mark(standing: Standing, percent: int) -> str:
    return f"spend/{standing.limit.pk}/{standing.resets_at:%Y-%m}/{standing.limit.amount}/{percent}"


def _lock_owner(owner_id: UUID) -> None:
    """One submit of an organisation at a time, until the commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"spend:{owner_id}"])
