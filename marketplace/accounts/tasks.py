"""Celery tasks of `marketplace.accounts`."""

from __future__ import annotations

from celery import shared_task

from marketplace.accounts import signin_addresses, signin_limits


@shared_task(ignore_result=True)
def forget_signin_limits() -> int:
    """Once a day: delete counts of failed sign-ins that count no more, and addresses of long ago."""
    return signin_limits.forget_old() + signin_addresses.forget_old()
