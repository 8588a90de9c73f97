from datetime import UTC, datetime

from django.db import migrations, models

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(2999, 12, 31, 23, 59, 59, tzinfo=UTC)


class Migration(migrations.Migration):
    """A moment that a stranger names lies within the calendar, or is not stored."""

    dependencies = [("nodes", "0009_move_moments_into_calendar")]

    operations = [
        migrations.AddConstraint(
            model_name="offer",
            constraint=models.CheckConstraint(
                condition=models.Q(available_until=None) | models.Q(available_until__gte=FIRST, available_until__lte=LAST),
                name="offer_ends_within_calendar",
            ),
        ),
        migrations.AddConstraint(
            model_name="node",
            constraint=models.CheckConstraint(
                condition=models.Q(rolled_back_at=None) | models.Q(rolled_back_at__gte=FIRST, rolled_back_at__lte=LAST),
                name="node_rollback_within_calendar",
            ),
        ),
    ]
