"""An observed price is never changed: quotes refer to it."""

from django.db import migrations

RULES = """
CREATE TRIGGER token_price_never_changed BEFORE UPDATE OR DELETE ON billing_tokenprice
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
RULES_BACK = "DROP TRIGGER token_price_never_changed ON billing_tokenprice;"


class Migration(migrations.Migration):
    dependencies = [("billing", "0051_prices")]

    operations = [migrations.RunSQL(RULES, RULES_BACK)]
