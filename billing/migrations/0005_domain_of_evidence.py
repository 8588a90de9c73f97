"""Evidence keeps the domain that both receipts are signed for: without it nobody else can check them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_kinds_of_the_outside")]

    operations = [
        migrations.AddField("receiptevidence", "chain_id", models.PositiveBigIntegerField(default=0)),
        migrations.AddField(
            "receiptevidence",
            "contract",
            models.CharField(default="0x0000000000000000000000000000000000000000", max_length=42),
        ),
    ]
