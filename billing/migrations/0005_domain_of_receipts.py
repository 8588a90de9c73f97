"""Receipts and evidence keep the domain that they are signed for: without it nobody else can check them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_kinds_of_the_outside")]

    operations = [
        step
        for model in ("receiptevidence", "usagereceipt")
        for step in (
            migrations.AddField(model, "chain_id", models.PositiveBigIntegerField(default=0)),
            migrations.AddField(
                model,
                "contract",
                models.CharField(default="0x0000000000000000000000000000000000000000", max_length=42),
            ),
        )
    ]
