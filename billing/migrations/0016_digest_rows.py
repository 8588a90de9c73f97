"""A digest beside each row of money, written by the database; rows that are there get theirs now."""

from django.db import migrations

from billing.functions import install

TABLES = {
    "billing_deposit": "deposit",
    "billing_hold": "hold",
    "billing_settlement": "settlement",
    "billing_settlementshare": "share",
    "billing_usagereceipt": "receipt",
    "billing_receiptevidence": "evidence",
    "billing_dailyroot": "daily_root",
}
# Past the triggers that forbid changes: this is what they did not know yet.
FILL = "\n".join(
    f"ALTER TABLE {table} DISABLE TRIGGER USER; UPDATE {table} r SET row_digest = billing_digest(r);"
    f" ALTER TABLE {table} ENABLE TRIGGER USER;"
    for table in TABLES
)
BACK = "\n".join(
    f"DROP TRIGGER z_{name}_digest ON {table}; DROP FUNCTION billing_digest({table});"
    for table, name in TABLES.items()
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0015_row_digests")]

    operations = [
        migrations.RunSQL(migrations.RunSQL.noop, BACK),
        install("digest_rows"),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
