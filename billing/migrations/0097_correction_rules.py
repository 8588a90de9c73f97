"""A correction begins as proposed, moves along its edges, keeps its terms and is never deleted."""

from django.db import migrations

from billing.states import CORRECTION_MACHINE
from marketplace.foundation.state_triggers import enforce_states

FIXED = """
CREATE TRIGGER correction_keeps_its_terms BEFORE UPDATE ON billing_ledgercorrection
    FOR EACH ROW WHEN (
        OLD.state <> 'proposed'
        OR (OLD.rail, OLD.mirror, OLD.asset_id, OLD.ref, OLD.amount, OLD.against, OLD.why, OLD.proposer_id)
            IS DISTINCT FROM (NEW.rail, NEW.mirror, NEW.asset_id, NEW.ref, NEW.amount, NEW.against, NEW.why,
                NEW.proposer_id)
        OR OLD.owner_id IS DISTINCT FROM NEW.owner_id
    ) EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER correction_never_deleted BEFORE DELETE ON billing_ledgercorrection
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
FIXED_BACK = """
DROP TRIGGER correction_never_deleted ON billing_ledgercorrection;
DROP TRIGGER correction_keeps_its_terms ON billing_ledgercorrection;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0096_corrections"), ("foundation", "0002_state_edges")]

    operations = [
        enforce_states("billing_ledgercorrection", CORRECTION_MACHINE),
        migrations.RunSQL(FIXED, FIXED_BACK),
    ]
