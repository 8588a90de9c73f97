from django.db import migrations, models


class Migration(migrations.Migration):
    """A kind that nobody knows is no job's; those that there are stay valid."""

    dependencies = [("jobs", "0013_audits")]

    operations = [
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(kind__in=["train", "serve", "command"]), name="job_kind_known"
            ),
        ),
    ]
