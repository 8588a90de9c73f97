"""Quotes and leases are of an asset: the price that was locked, and rates, caps and charges in its base units."""

import django.db.models.deletion
from django.db import migrations, models

import billing.fields
import marketplace.foundation.clock
import marketplace.foundation.ids

USD = 1


def asset(**more: object) -> models.ForeignKey:
    """In what it counts."""
    return models.ForeignKey(
        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset", **more
    )


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0002_fence_sequence"),
        ("billing", "0004_kinds_of_the_outside"),
        ("nodes", "0001_initial"),
    ]

    operations = [
        migrations.AddField("quote", "asset", asset(default=USD), preserve_default=False),
        migrations.AddField("quote", "usd_micros_per_token", billing.fields.AmountField(default=1_000_000)),
        migrations.AddField("quote", "price_source", models.CharField(blank=True, max_length=40, default="")),
        migrations.AddField("quote", "price_observed_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("lease", "asset", asset(default=USD), preserve_default=False),
        migrations.AddField("lease", "rate_units_per_hour", billing.fields.AmountField(null=True)),
        migrations.AddField("lease", "cap_units", billing.fields.AmountField(null=True)),
        migrations.AddField("lease", "payment", models.JSONField(blank=True, default=dict)),
        migrations.AddField("lease", "charge_units", billing.fields.AmountField(blank=True, null=True)),
        migrations.AddField("lease", "charged_seq", models.PositiveBigIntegerField(blank=True, null=True)),
        migrations.AddField("lease", "checkpoint_ms", models.PositiveBigIntegerField(blank=True, null=True)),
        migrations.CreateModel(
            name="ReceiptDelegation",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("chain_id", models.PositiveBigIntegerField()),
                ("contract", models.CharField(max_length=42)),
                ("wallet", models.CharField(max_length=42)),
                ("receipt_address", models.CharField(max_length=42)),
                ("not_after", models.DateTimeField()),
                ("nonce", billing.fields.AmountField()),
                ("signature", models.CharField(max_length=132)),
                ("created_by", models.CharField(max_length=120)),
                ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("asset", asset()),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="delegations", to="nodes.node"
                    ),
                ),
            ],
        ),
    ]
