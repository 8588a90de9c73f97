from django.db import migrations, models

import billing.fields


class Migration(migrations.Migration):
    """Waiting jobs that no tick need look at: without money for their hold, or fitting nowhere in a full queue."""

    dependencies = [("jobs", "0018_moments_within_calendar")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="unfunded_units",
            field=billing.fields.AmountField(null=True, blank=True),
        ),
        migrations.AddField(
            model_name="job",
            name="skipped_until",
            field=models.DateTimeField(null=True, blank=True),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(unfunded_units=None) | models.Q(unfunded_units__gt=0),
                name="job_lacks_an_amount_or_none",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                fields=["organisation"], condition=models.Q(unfunded_units__isnull=False), name="jobs_unfunded"
            ),
        ),
    ]
