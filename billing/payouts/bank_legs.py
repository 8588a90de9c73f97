"""From the provider's account at its rail to its bank: what is known is kept, shown, reported and tried again.

A payout is confirmed once the money is the provider's at Stripe. What follows there may be refused:

    record   keeps what the rail reported (outcomes.py); a refusal is tried again, later each time, TRIES_MAX times
    again    an operator may have it tried at once, as after the provider gave Stripe another bank account
    is due   submission.py asks the rail again; the rail (payout_rail.py) tries only what is due
    alert    open from the first refusal until the money is under way, at the bank, or back with us
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Final
from uuid import UUID

from billing.models import BankLeg, Payout
from billing.notices import alerts
from billing.payouts import notifying
from billing.rails.payouts import BankReport
from billing.states import BANK_STATES_RETRIED, BankState
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from provider_agent.protocol.backoff import backoff_seconds

TRIES_MAX: Final = 12  # with the pauses below: eight days
PAUSE_SECONDS_FIRST: Final = 3600
PAUSE_SECONDS_MAX: Final = 24 * 3600
MESSAGE_CHARACTERS_MAX: Final = 500

log = logging.getLogger(__name__)


def record(payout: Payout, report: BankReport) -> BankLeg:
    """Keep what the rail reported; the caller holds the payout's row, so that reports are kept one after the other."""
    leg, is_new = BankLeg.objects.get_or_create(payout=payout)
    if is_new:
        record_birth(leg)
    message = report.message[:MESSAGE_CHARACTERS_MAX]
    if report.state != leg.state:
        if report.state not in BankLeg.STATE_MACHINE.transitions[leg.state]:
            return leg  # an older report
        bank_payout_id = report.bank_payout_id or leg.bank_payout_id
        leg = advance(
            leg,
            report.state,
            reason=report.state,
            bank_payout_id=bank_payout_id,
            message=message,
            tries=0,
            next_at=None,
        )
        alerts.close(alert_key(payout))
        if report.state == BankState.LEFT:
            _alert(payout, leg, then="Nobody sends it on by itself: agree with the provider.")
    if leg.state in BANK_STATES_RETRIED and report.number > leg.tries:
        _put_off(payout, leg, message)
    return leg


def try_again(leg_ids: Iterable[UUID]) -> int:
    """Have refused ones tried at the next look, those too that nobody tries any more; how many there are."""
    refused = BankLeg.objects.filter(pk__in=list(leg_ids), state__in=BANK_STATES_RETRIED)
    return refused.update(next_at=clock.now())


def alert_key(payout: Payout) -> str:
    """Of the alert that this payout does not get to the bank."""
    return f"payout_bank:{payout.pk}"


def _put_off(payout: Payout, leg: BankLeg, message: str) -> None:
    """Count a refusal; the next try comes later each time, and after TRIES_MAX none comes by itself."""
    leg.tries, leg.message = leg.tries + 1, message
    pause = backoff_seconds(leg.tries, first=PAUSE_SECONDS_FIRST, most=PAUSE_SECONDS_MAX)
    leg.next_at = clock.now() + timedelta(seconds=pause) if leg.tries < TRIES_MAX else None
    leg.save(update_fields=["tries", "message", "next_at"])
    if leg.next_at is None:
        then = f"It was refused {leg.tries} times, and is not tried again by itself."
    else:
        then = f"Try {leg.tries + 1} of {TRIES_MAX} is on {leg.next_at:%Y-%m-%d %H:%M} UTC."
    _alert(payout, leg, then=then)
    if leg.tries in {1, TRIES_MAX}:
        notifying.notify_bank(payout, leg, then=then)
    log.warning("A payout does not get to the bank. payout_id=%s state=%s tries=%d", payout.pk, leg.state, leg.tries)


def _alert(payout: Payout, leg: BankLeg, *, then: str) -> None:
    what = {
        BankState.REFUSED: "is the provider's at Stripe, which does not send it on to the bank",
        BankState.SENT_BACK: "was sent back by the bank to the provider's account at Stripe, and cannot be reversed",
        BankState.LEFT: "was reversed in part before it was sent on; the rest is in the provider's account at Stripe",
    }[BankState(leg.state)]
    alerts.raise_once(
        alert_key(payout),
        kind="payout_bank",
        severity=alerts.Severity.WARNING,
        subject=payout.pk,
        message=f"A payout of {payout.asset.show(int(payout.amount))} {what}: {leg.message} {then}",
    )
