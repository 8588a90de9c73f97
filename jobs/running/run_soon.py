"""Start a task before its schedule does; the schedule makes up for one that was lost."""

from __future__ import annotations

from typing import Final

from celery import current_app
from django.db import transaction

EXPIRY_SECONDS: Final = 10.0  # after it was due: by then the schedule has started it


def run_soon(task: str, *, seconds: float = 0.0) -> None:
    """Start a task by its name so many seconds after the present transaction has committed; never raises."""

    def send() -> None:
        current_app.send_task(task, countdown=seconds or None, expires=seconds + EXPIRY_SECONDS)

    transaction.on_commit(send, robust=True)
