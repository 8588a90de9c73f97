"""Away with what 0012 could not change under, and with foreign keys that made everybody lock the same rows.

0013 puts looks in the place of the keys: an account is never deleted and its asset never changes.
"""

from django.db import migrations

KEYS = """
ALTER TABLE billing_transfer DROP CONSTRAINT transfer_debit_of_its_asset, DROP CONSTRAINT transfer_credit_of_its_asset;
"""
KEYS_BACK = """
ALTER TABLE billing_transfer
    ADD CONSTRAINT transfer_debit_of_its_asset
        FOREIGN KEY (debit_id, asset_id) REFERENCES billing_account (id, asset_id),
    ADD CONSTRAINT transfer_credit_of_its_asset
        FOREIGN KEY (credit_id, asset_id) REFERENCES billing_account (id, asset_id);
"""
# A trigger whose condition names a column keeps the column's type.
GUARDS = """
DROP TRIGGER account_starts_empty ON billing_account;
DROP TRIGGER account_sums_by_transfers_only ON billing_account;
"""


def guards_back(apps, schema_editor):
    """As `billing/sql/guard_accounts.sql` makes them."""
    from billing.functions import FOLDER

    schema_editor.execute((FOLDER / "guard_accounts.sql").read_text(), params=None)


def guards_away(apps, schema_editor):
    """They come back in 0013."""
    schema_editor.execute(GUARDS, params=None)


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_hold_states")]

    operations = [migrations.RunSQL(KEYS, KEYS_BACK), migrations.RunPython(guards_away, guards_back)]
