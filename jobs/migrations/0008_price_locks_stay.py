"""A price at which leases were paid is never changed or taken away."""

from django.db import migrations

FORWARD = """
CREATE TRIGGER price_lock_stays BEFORE UPDATE OR DELETE ON jobs_pricelock
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
BACK = "DROP TRIGGER price_lock_stays ON jobs_pricelock;"


class Migration(migrations.Migration):
    dependencies = [("billing", "0014_holds_add_up"), ("jobs", "0007_prices_of_jobs")]
    operations = [migrations.RunSQL(FORWARD, BACK)]
