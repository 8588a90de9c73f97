"""Accounts from before addresses were verified go on as they are."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("accounts", "0007_verified_addresses")]

    operations = [
        migrations.RunSQL(
            "UPDATE accounts_user SET verified_at = created_at WHERE verified_at IS NULL", migrations.RunSQL.noop
        )
    ]
