"""A token's price does not stay locked for ever while a job waits for a node.

    judge         decide: whether the lock is young, or the current price is near, better, agreed to or allowed
    settle_price  placing: the price at which a job gets its leases, with its hold changed to fit
    follow        a job that has to wait shows for what, until the price is known, is back, or was confirmed
    confirm       its customer confirms the price that it waits for

Prices are read from billing's book, which has what the feeds reported: nothing here uses the network. A lease keeps the
price at which it was made.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from billing import prices
from billing.charging import holds, promotions
from billing.errors import PriceUnavailable
from billing.models import Hold
from jobs import lifecycle
from jobs.errors import HoldCannotGrow, JobEnded, PriceMoved, PriceNotAsked, PriceUnsettled
from jobs.models import Job, PriceHalt, PriceLock
from jobs.payment.price_rules import Decision, PriceReason, decide, is_near, units_due
from jobs.payment.terms import USD, USD_SCALE, show_units
from jobs.pricing.costs import Charged, charged_of
from jobs.pricing.funds import require_money
from jobs.pricing.price_locks import JobPrice, price_of
from jobs.states import JOB_ENDS, JOB_WAITING
from marketplace.foundation import clock

REQUOTED: Final = "requoted"  # why a hold was released: a smaller one took its place

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judgement:
    """What the price of now means for a waiting job; nothing decided where the lock is young, or no price is known."""

    price: JobPrice
    found: prices.Price | None = None
    decision: Decision | None = None
    is_unknown: bool = False

    @property
    def is_halting(self) -> bool:
        """Whether the job has to wait."""
        return self.is_unknown or (self.decision is not None and self.decision.reason is None)


def judge(job: Job) -> Judgement:
    """Whether the job may be placed at which price; a look only."""
    price, now = price_of(job), clock.now()
    age_max = timedelta(seconds=settings.SOUK_TOKEN_PRICE_SECONDS)
    if price.payment.is_usd or now - price.locked_at <= age_max:
        return Judgement(price)
    try:
        found = prices.current(job.quote.asset_id, now=now)
    except PriceUnavailable:
        return Judgement(price, is_unknown=True)
    decision = decide(
        locked=price.payment.usd_micros_per_token,
        agreed=price.agreed,
        current=found.usd_micros_per_token,
        move_bps=settings.SOUK_TOKEN_PRICE_MOVE_BPS,
        is_allowed=not job.is_escrow and _is_allowed(job),
    )
    return Judgement(price, found, decision)


def halts(job: Job) -> bool:
    """Whether a price keeps the job from being placed now; the job then shows it. Called before others lose a place."""
    return job.asset_code != USD and judge(job).is_halting and follow(job.pk)


def settle_price(job: Job) -> JobPrice:
    """The price at which this locked job is placed now, in the transaction that places it.

    Raises PriceUnsettled where it has to wait; InsufficientFunds, AccountFrozen of a hold that would have to grow.
    """
    if job.asset_code == USD:
        return price_of(job)
    judgement = judge(job)
    if judgement.is_halting:
        raise PriceUnsettled()
    PriceHalt.objects.filter(job=job).delete()
    if judgement.found is None or judgement.decision is None or judgement.decision.reason is None:
        return judgement.price
    return _lock_price(job, judgement.price, judgement.found, judgement.decision)


def follow(job_id: UUID) -> bool:
    """Whether a price still halts the job; if not, it may be placed again."""
    with transaction.atomic():
        job = lifecycle.lock(job_id)
        judgement = judge(job)
        if job.state not in JOB_WAITING or not judgement.is_halting:
            if PriceHalt.objects.filter(job=job).delete()[0]:
                _say(job, "")
            return False
        halt = _keep_halt(job, judgement)
        _say(job, _why(job, judgement.price, halt))
    return True


def confirm(job_id: UUID, *, usd_micros_per_token: int, actor: str) -> Job:
    """The customer's yes to the price that the job waits for: it goes on at it, or at the better one of now.

    The hold grows in the same transaction. A repeat changes nothing. Raises PriceNotAsked, PriceMoved, JobEnded,
    HoldCannotGrow in escrow mode, NotEnoughMoney; of billing's prices PriceUnavailable.
    """
    with transaction.atomic():
        job = lifecycle.lock(job_id)
        if job.state in JOB_ENDS:
            raise JobEnded(state=job.state)
        halt = PriceHalt.objects.filter(job=job).exclude(usd_micros_per_token=None).first()
        if halt is None:
            said = PriceLock.objects.filter(job=job, reason=PriceReason.CONFIRMED)
            if said.filter(usd_micros_per_token__gte=usd_micros_per_token).exists():
                return job
            raise PriceNotAsked()
        if job.is_escrow:
            raise HoldCannotGrow(what="No lower price can be confirmed for this job", how="and cancel this one")
        asked = int(halt.usd_micros_per_token)
        judgement = judge(job)
        if judgement.is_unknown or judgement.found is None:
            raise PriceUnavailable(asset=job.asset_code, why="none is known now")
        current = judgement.found.usd_micros_per_token
        asks = asked if _is_as_good(current, asked) else current
        if asks != usd_micros_per_token:
            raise PriceMoved(
                asset=job.asset_code,
                given=_usd(usd_micros_per_token),
                asked=_usd(asks),
                asked_usd_micros_per_token=str(asks),
            )
        if judgement.is_halting:  # else the market has come back: no consent is needed
            decision = Decision(max(asks, current), PriceReason.CONFIRMED)
            price = _lock_price(job, judgement.price, judgement.found, decision, actor=actor)
            if not holds.is_open(job.pk):
                _require_money(job, price, price.units_due(job.cap_usd_micros))
        halt.delete()
        _say(job, "")
    return job


def due_after(job: Job, price: JobPrice, usd_micros_per_token: int) -> int:
    """Base units that the job's hold would have at another price from now on."""
    payment, charged = price.payment.at(usd_micros_per_token), charged_of(job)
    return units_due(payment, job.cap_usd_micros, charged_usd_micros=charged.usd_micros, charged_units=charged.units)


def _lock_price(
    job: Job, price: JobPrice, found: prices.Price, decision: Decision, *, actor: str = "system"
) -> JobPrice:
    """The next price of a locked job, and its hold as it has to be at it."""
    assert decision.reason is not None  # noqa: S101 - the callers check first
    before, is_renewed = price.lock, decision.reason == PriceReason.RENEWED
    charged, attempts = Charged(0, 0), 0
    if not is_renewed:
        charged, attempts = charged_of(job), job.attempts.count()
    elif before is not None:
        charged = Charged(before.charged_usd_micros, int(before.charged_units))
        attempts = before.attempts_before
    PriceLock.objects.create(
        job=job,
        number=before.number + 1 if before else 1,
        usd_micros_per_token=decision.usd_micros_per_token,
        source=price.payment.source if is_renewed else str(found.source),
        observed_at=(price.payment.observed_at if is_renewed else None) or found.observed_at,
        reason=decision.reason,
        actor=actor[:120],
        attempts_before=attempts,
        charged_usd_micros=charged.usd_micros,
        charged_units=charged.units,
    )
    locked = price_of(job)
    if not is_renewed and not job.is_escrow:
        _fit_hold(job, locked)
    log.info(
        "A job's token price was looked at again: %s.",
        decision.reason.value,
        extra={"job_id": str(job.pk), "before": price.payment.usd_micros_per_token, "now": found.usd_micros_per_token},
    )
    return locked


def _fit_hold(job: Job, price: JobPrice) -> None:
    """Make an open hold what is due at the price, to the unit; given credit stays credit."""
    hold = Hold.objects.open().filter(job_id=job.pk).first()
    if hold is None:
        return
    due, held = price.units_due(job.cap_usd_micros), int(hold.amount)
    if due > held:
        _require_money(job, price, due - held)
        promotions.draw(job.organisation_id, job.pk, due - held, asset_id=hold.asset_id)
        holds.extend_hold(job.pk, amount=due - held)
    elif due < held:
        promotions.lock_job(job.pk)
        holds.release_hold(job.pk, reason=REQUOTED)
        holds.place_hold(owner_id=hold.owner_id, job_id=job.pk, amount=due, asset_id=hold.asset_id)
        promotions.return_unused(job.pk, spent=due)


def _require_money(job: Job, price: JobPrice, units: int) -> None:
    require_money(job.organisation_id, job.quote.asset_id, price.payment, units, cap=job.cap_usd_micros)


def _keep_halt(job: Job, judgement: Judgement) -> PriceHalt:
    """The price to confirm stays the same while the market price does, so that a confirmation matches it."""
    halt, found = PriceHalt.objects.filter(job=job).first(), judgement.found
    if found is None:
        if halt is None or halt.usd_micros_per_token is not None:
            unknown = {"usd_micros_per_token": None, "source": "", "observed_at": None}
            halt, _ = PriceHalt.objects.update_or_create(job=job, defaults=unknown)
        return halt
    current = found.usd_micros_per_token
    if halt is not None and _is_asked(halt, current):
        return halt
    asked = {"usd_micros_per_token": current, "source": str(found.source), "observed_at": found.observed_at}
    halt, _ = PriceHalt.objects.update_or_create(job=job, defaults=asked)
    log.info("A job waits for its customer to confirm a price.", extra={"job_id": str(job.pk), "asked": current})
    return halt


def _is_asked(halt: PriceHalt, current: int) -> bool:
    """Whether the job waits for a confirmation of this price already, or of one that is near."""
    asked = halt.usd_micros_per_token
    return asked is not None and is_near(current, int(asked), settings.SOUK_TOKEN_PRICE_MOVE_BPS)


def _why(job: Job, price: JobPrice, halt: PriceHalt) -> str:
    """What the job waits for, for people; the same text while it is the same."""
    asset = price.payment.asset
    if halt.usd_micros_per_token is None:
        return f"the price of {asset}: the one that its quote locked is too old, and none is known now"
    asked, locked = int(halt.usd_micros_per_token), price.payment.usd_micros_per_token
    fell = f"{asset} is at {_usd(asked)}, and the job's price of {_usd(locked)} is too old to be placed at"
    if job.is_escrow:
        return (
            f"{fell}. What the contract holds is what your wallet signed, and cannot grow: cancel the job, which gives "
            "the hold back, and launch it again; or wait until the price is back."
        )
    more = due_after(job, price, asked) - price.units_due(job.cap_usd_micros)
    return (
        f"your word on a price: {fell}. At the new one it holds {price.payment.show(more)} more for the same dollars. "
        f"Confirm it (`souk confirm-price {job.pk}`, or POST /api/v1/jobs/{job.pk}/confirm-price), or cancel the job, "
        "or wait until the price is back."
    )


def _is_as_good(current: int, asked: int) -> bool:
    return current >= asked or is_near(current, asked, settings.SOUK_TOKEN_PRICE_MOVE_BPS)


def _is_allowed(job: Job) -> bool:
    return (job.spec.get("payment") or {}).get("on_price_change") == "requote"


def _say(job: Job, message: str) -> None:
    if job.waiting_for != message:
        job.waiting_for = message
        job.save(update_fields=["waiting_for"])


def _usd(usd_micros: int) -> str:
    return show_units(usd_micros, asset=USD, scale=USD_SCALE)
