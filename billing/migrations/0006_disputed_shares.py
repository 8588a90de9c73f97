"""A share of a settlement can be disputed: it is not released until somebody has decided."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_domain_of_receipts")]

    operations = [
        migrations.AddField("settlementshare", "is_disputed", models.BooleanField(default=False, db_default=False)),
    ]
