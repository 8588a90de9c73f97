"""A provider's shares are found by when their windows end; the index is built beside writers, and replaces one."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("billing", "0106_read_contract_terms_again")]

    operations = [
        AddIndexConcurrently(
            "settlementshare", models.Index(fields=["provider_id", "challenge_until"], name="share_of_provider")
        ),
        migrations.AlterField("settlementshare", "provider_id", models.UUIDField()),
    ]
