"""Celery's entry points into billing; each may run twice or never."""

from __future__ import annotations

from celery import shared_task

from billing import dispatch, invoices
from billing.books import hash_chain
from billing.charging import promotions, settlement
from billing.contesting import disputes, offences
from billing.fiat import (
    accounts,
    automatic,
    calls,  # noqa: F401 - its handlers
    events,
    sweeping,
    topups,
)
from billing.payouts import (
    running,
    stripe_events,  # noqa: F401 - its handlers
    submission,
)
from billing.prices import feeds
from billing.reconciliation import correcting, reconciling
from billing.solvency import publishing
from marketplace.foundation.exclusive import log_failures


@shared_task
def seal_transfers() -> None:
    """Extend the hash chain; once a day, write the day's root; where it is due, publish a solvency report."""
    hash_chain.chain_transfers()
    with log_failures("No solvency report could be sealed."):
        publishing.publish_due()
    publishing.forget_old_proofs()


@shared_task
def release_pending() -> None:
    """Make spendable what providers earned, once its challenge window is over."""
    settlement.release_pending()


@shared_task
def dispatch_due() -> None:
    """Make the calls to the outside world that were written down."""
    dispatch.dispatch_due()


@shared_task
def refresh_prices() -> None:
    """Ask the feeds what tokens are worth."""
    feeds.refresh_prices()


@shared_task
def sweep_disputes() -> None:
    """Close what nobody answered, remind of what nobody decided, fine what was proven, release what fines left."""
    for part in (disputes.sweep, offences.judge, offences.release_rest):
        with log_failures("A part of the sweep of disputes failed."):
            part()


@shared_task
def expire_promotions() -> None:
    """Withdraw given credit that was not used in time."""
    promotions.expire_due()


@shared_task
def issue_invoices() -> None:
    """Issue last month, where that has not been done."""
    invoices.issue_due()


@shared_task
def follow_chains() -> None:
    """Read every chain, book what is final, send what is due. web3 is loaded where there is a chain only."""
    from billing.chain_following.chains import follow_chains as follow

    follow()


@shared_task
def tend_chains() -> None:
    """Slash stakes for what fines did not find, and look whether our keys have coins for gas."""
    from billing.chain_following.upkeep import maintain_chains as maintain

    maintain()


@shared_task
def run_payouts() -> None:
    """Pay the providers who are due."""
    running.run_payouts()


@shared_task
def follow_payouts() -> None:
    """Ask the rails what became of the payouts that are under way."""
    submission.follow_payouts()


@shared_task
def reconcile() -> None:
    """Reconcile the ledger with the outside, forget old reports, and see who is new among those who correct it."""
    with log_failures("New operators were not looked for."):
        correcting.watch()
    reconciling.reconcile(reason="hourly")
    reconciling.forget_old_reports()


@shared_task
def tend_fiat() -> None:
    """Handle the events that Stripe sent, make spendable what waited, and request what customers' rules ask for."""
    events.process_due()
    topups.release_waiting()
    automatic.run_rules()


@shared_task
def poll_stripe() -> None:
    """Poll Stripe for what no webhook reported."""
    for part in (events.poll, sweeping.sweep, accounts.refresh_oldest):
        with log_failures("Stripe could not be asked."):
            part()
    tend_fiat()
