"""The hot verbs as SQL functions, and the looks that stand in the place of foreign keys."""

from django.db import migrations

from billing.functions import install

# Room on each page for the next version of a row whose sums change all day, so that no index has to learn of it.
ROOM = "ALTER TABLE billing_account SET (fillfactor = 60)"
ROOM_BACK = "ALTER TABLE billing_account RESET (fillfactor)"
GUARDS_AWAY = """
DROP TRIGGER account_starts_empty ON billing_account;
DROP TRIGGER account_sums_by_transfers_only ON billing_account;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_ledger_widths"), ("foundation", "0002_state_edges")]

    operations = [
        migrations.RunSQL(ROOM, ROOM_BACK),
        migrations.RunSQL(migrations.RunSQL.noop, GUARDS_AWAY),
        install("guard_accounts"),
        install("apply_transfers"),
        install("guard_assets"),
        install("post_transfers"),
        install("place_hold"),
        install("settle_job"),
    ]
