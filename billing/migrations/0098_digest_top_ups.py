"""A digest beside each top-up, written by the database; rows that are there get theirs now."""

from django.db import migrations, models

from billing.functions import install

FILL = "UPDATE billing_topup r SET row_digest = billing_digest(r)"
BACK = "DROP TRIGGER z_top_up_digest ON billing_topup; DROP FUNCTION billing_digest(billing_topup)"


class Migration(migrations.Migration):
    dependencies = [("billing", "0097_correction_rules")]

    operations = [
        migrations.AddField(
            model_name="topup",
            name="row_digest",
            field=models.CharField(db_default="", default="", editable=False, max_length=64),
        ),
        migrations.RunSQL(migrations.RunSQL.noop, BACK),
        install("digest_top_ups"),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
