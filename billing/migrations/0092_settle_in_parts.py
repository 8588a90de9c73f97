"""A job that goes on for long is settled in parts, each with a hold of its own; the last one is final."""

from django.db import migrations

from billing.functions import install

# Its arguments are others now, and one function shall be of this name.
DROP_OLD = """
DROP FUNCTION IF EXISTS billing_settle_job(uuid, uuid, int, numeric, numeric, numeric, uuid[], uuid[], uuid[],
    numeric[], numeric[], numeric[], timestamptz, timestamptz);
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0091_parts_of_settlements")]

    operations = [
        migrations.RunSQL(DROP_OLD, migrations.RunSQL.noop),
        install("settle_job"),
        install("place_hold"),
    ]
