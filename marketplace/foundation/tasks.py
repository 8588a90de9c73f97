"""Celery tasks of `marketplace.foundation`."""

from __future__ import annotations

from celery import shared_task

from marketplace.foundation import event_seals, idempotency


@shared_task(ignore_result=True)
def forget_old_keys() -> int:
    """Once a day: delete answers to requests that are not repeated any more."""
    return idempotency.forget_old_keys()


@shared_task(ignore_result=True)
def seal_events() -> int:
    """Every few minutes: extend the hash chain over the events."""
    return event_seals.seal_events()
