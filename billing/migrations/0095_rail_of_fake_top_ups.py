"""Top-ups that only pretended were by the fake rail."""

from django.db import migrations

FILL = "UPDATE billing_topup SET rail = 'fake' WHERE is_fake"


class Migration(migrations.Migration):
    dependencies = [("billing", "0094_rail_of_top_ups")]

    operations = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
