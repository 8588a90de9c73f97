"""What is decided, issued, or a fact, is never changed."""

from django.db import migrations

FIXED = ("endrecord", "offence", "offencetaking", "invoice")

RULES = "".join(
    f"""
CREATE TRIGGER {table}_never_changed BEFORE UPDATE OR DELETE ON billing_{table}
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
    for table in FIXED
)
RULES_BACK = "".join(f"DROP TRIGGER {table}_never_changed ON billing_{table};\n" for table in FIXED)

DISPUTES = """
CREATE TRIGGER dispute_never_changed_once_over BEFORE UPDATE ON billing_dispute
    FOR EACH ROW WHEN (OLD.state IN ('decided', 'withdrawn')) EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER dispute_never_deleted BEFORE DELETE ON billing_dispute
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
DISPUTES_BACK = """
DROP TRIGGER dispute_never_deleted ON billing_dispute;
DROP TRIGGER dispute_never_changed_once_over ON billing_dispute;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0054_faults")]

    operations = [
        migrations.RunSQL(RULES, RULES_BACK),
        migrations.RunSQL(DISPUTES, DISPUTES_BACK),
    ]
