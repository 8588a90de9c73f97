"""Celery's doors into billing; each may run twice or never."""

from __future__ import annotations

from celery import shared_task

from billing import dispatch, seal, settlement
from billing.fiat import accounts, automatic, calls, events, sweeping, topups  # calls: registers its handlers
from marketplace.foundation.exclusive import alone


@shared_task
def seal_transfers() -> None:
    """Extend the hash chain; once a day, seal the day."""
    seal.seal_transfers()


@shared_task
def release_pending() -> None:
    """Make spendable what providers earned, once its challenge window is over."""
    settlement.release_pending()


@shared_task
def dispatch_due() -> None:
    """Make the calls to the outside world that were written down."""
    dispatch.dispatch_due()


@shared_task
def tend_fiat() -> None:
    """Handle what Stripe told, make spendable what waited, and request what customers' rules ask for."""
    events.process_due()
    topups.release_waiting()
    automatic.run_rules()


@shared_task
def poll_stripe() -> None:
    """Ask Stripe what we were not told."""
    for part in (events.poll, sweeping.sweep, accounts.refresh_oldest):
        with alone("Stripe could not be asked."):
            part()
    tend_fiat()


__all__ = ["calls", "dispatch_due", "poll_stripe", "release_pending", "seal_transfers", "tend_fiat"]
