"""Migrate: versions that were `taken_back` are `rolled_back`. A later version's constraint knows the new name alone."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0015_allow_rolled_back")]

    operations = [
        migrations.RunSQL(
            "UPDATE jobs_endpointversion SET state = 'rolled_back' WHERE state = 'taken_back'",
            "UPDATE jobs_endpointversion SET state = 'taken_back' WHERE state = 'rolled_back'",
        ),
    ]
