"""What was leased so far was paid in dollars, whose base units are the micro-dollars that it was counted in."""

from django.db import migrations

COUNT = """
    UPDATE jobs_lease
    SET rate_units_per_hour = rate_usd_micros_per_hour, cap_units = cap_usd_micros, charge_units = charge_usd_micros
    WHERE rate_units_per_hour IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_payment")]
    operations = [migrations.RunSQL(COUNT, migrations.RunSQL.noop)]
