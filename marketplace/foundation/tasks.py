"""Celery's doors to this room."""

from __future__ import annotations

from celery import shared_task

from marketplace.foundation import idempotency


@shared_task(ignore_result=True)
def forget_old_keys() -> int:
    """Once a day: answers to requests that nobody repeats any more."""
    return idempotency.forget_old_keys()
