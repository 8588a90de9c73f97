"""Fences come from one sequence, so that a newer lease of any device always has a higher one."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]
    operations = [
        migrations.RunSQL("CREATE SEQUENCE jobs_lease_fence", "DROP SEQUENCE jobs_lease_fence"),
    ]
