"""Celery tasks of `marketplace.accounts`."""

from __future__ import annotations

from celery import shared_task

from marketplace.accounts import signin_addresses, signin_limits, signup


@shared_task(ignore_result=True)
def forget_signin_limits() -> int:
    """Once a day: delete old counts of failed sign-ins, addresses of long ago, and sign-ups that nobody confirmed."""
    return signin_limits.forget_old() + signin_addresses.forget_old() + signup.forget_old()
