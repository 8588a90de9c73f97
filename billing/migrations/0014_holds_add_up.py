"""What is set aside is what the open hold says (P7), and a settlement's parts are its hold (P8): at every commit."""

from django.db import migrations

from billing.functions import install

BACK = """
DROP TRIGGER share_never_deleted ON billing_settlementshare;
DROP TRIGGER share_only_released ON billing_settlementshare;
DROP TRIGGER share_adds_up ON billing_settlementshare;
DROP TRIGGER settlement_adds_up ON billing_settlement;
DROP TRIGGER hold_never_deleted ON billing_hold;
DROP TRIGGER hold_keeps_its_job ON billing_hold;
DROP TRIGGER account_fits_its_hold ON billing_account;
DROP TRIGGER hold_ends_without_pending ON billing_hold;
DROP TRIGGER hold_fits_its_account ON billing_hold;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_ledger_functions")]

    operations = [migrations.RunSQL(migrations.RunSQL.noop, BACK), install("guard_holds")]
