"""The sums of accounts are written by functions that run as the tables' owner: see `billing/grants.py`."""

from django.db import migrations

from billing.functions import install


class Migration(migrations.Migration):
    dependencies = [("billing", "0017_quotes")]

    operations = [
        migrations.RunSQL(migrations.RunSQL.noop, "DROP FUNCTION billing_roll_up(bigint)"),
        install("apply_transfers"),
        install("roll_up"),
    ]
