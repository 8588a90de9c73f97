"""Celery's doors into billing; each may run twice or never."""

from __future__ import annotations

from celery import shared_task

from billing import (
    alerts,  # noqa: F401 - its handler
    dispatch,
    seal,
    settlement,
)


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
def follow_chains() -> None:
    """Read every chain, book what is final, send what is due. web3 is loaded where there is a chain only."""
    from billing.chain.following import follow_chains as follow

    follow()
