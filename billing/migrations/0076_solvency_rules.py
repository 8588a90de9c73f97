"""What was published stays as it was published; its tree may be dropped, and never changed."""

from django.db import migrations

IMMUTABLE = """
CREATE TRIGGER solvency_report_never_changed BEFORE UPDATE OR DELETE ON billing_solvencyreport
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER solvency_chunk_never_changed BEFORE UPDATE ON billing_solvencychunk
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
IMMUTABLE_BACK = """
DROP TRIGGER solvency_chunk_never_changed ON billing_solvencychunk;
DROP TRIGGER solvency_report_never_changed ON billing_solvencyreport;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0075_solvency_proofs")]

    operations = [migrations.RunSQL(IMMUTABLE, IMMUTABLE_BACK)]
