"""When a provider's next payout is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings

from billing.models import PayoutSettings

_Schedule = PayoutSettings.Schedule
MONDAY = 0


def next_due(schedule: str, after: datetime) -> datetime | None:
    """The first payout time after this moment; None for a provider who asks for each payout.

    Late in the day (SOUK_PAYOUT_HOUR, UTC), so that what leaves its challenge window during a day is paid on that day.
    """
    if schedule == _Schedule.MANUAL:
        return None
    after = after.astimezone(UTC)
    due = after.replace(hour=settings.SOUK_PAYOUT_HOUR, minute=0, second=0, microsecond=0)
    if due <= after:
        due += timedelta(days=1)
    if schedule == _Schedule.WEEKLY:
        due += timedelta(days=(MONDAY - due.weekday()) % 7)
    return due
