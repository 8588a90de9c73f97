"""Transfers are found by their reference; the index is built beside writers, without a lock on the table."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("billing", "0098_digest_top_ups")]

    operations = [
        AddIndexConcurrently(
            "transfer",
            models.Index(
                fields=["external_ref"],
                condition=models.Q(("external_ref", ""), _negated=True),
                name="transfer_by_reference",
            ),
        )
    ]
