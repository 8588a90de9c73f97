from datetime import UTC, datetime

from django.db import migrations, models

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(2999, 12, 31, 23, 59, 59, tzinfo=UTC)


class Migration(migrations.Migration):
    """A moment that a stranger names lies within the calendar, or is not stored."""

    dependencies = [("accounts", "0002_move_moments_into_calendar")]

    operations = [
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(expires_at=None) | models.Q(expires_at__gte=FIRST, expires_at__lte=LAST),
                name="api_key_expires_within_calendar",
            ),
        ),
    ]
