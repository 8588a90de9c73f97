"""Payouts and the breaker move along their machines' edges, whoever writes; and what a payout is does not change."""

from django.db import migrations

from billing.states import BREAKER_MACHINE, PAYOUT_MACHINE
from marketplace.foundation.state_triggers import enforce_states

# Who is paid, how much, through what and where to was decided with the reservation. A return has its own transfer.
FIXED = """
CREATE TRIGGER payout_keeps_its_terms BEFORE UPDATE ON billing_payout FOR EACH ROW
    WHEN (
        (OLD.provider_id, OLD.rail, OLD.asset_id, OLD.amount, OLD.destination, OLD.created_at)
            IS DISTINCT FROM (NEW.provider_id, NEW.rail, NEW.asset_id, NEW.amount, NEW.destination, NEW.created_at)
        OR (OLD.pending_transfer_id IS NOT NULL AND OLD.pending_transfer_id IS DISTINCT FROM NEW.pending_transfer_id)
    ) EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER payout_never_deleted BEFORE DELETE ON billing_payout
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER payout_breaker_never_deleted BEFORE DELETE ON billing_payoutbreaker
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
FIXED_BACK = """
DROP TRIGGER payout_breaker_never_deleted ON billing_payoutbreaker;
DROP TRIGGER payout_never_deleted ON billing_payout;
DROP TRIGGER payout_keeps_its_terms ON billing_payout;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0040_payouts"), ("foundation", "0002_state_edges")]

    operations = [
        enforce_states("billing_payout", PAYOUT_MACHINE),
        enforce_states("billing_payoutbreaker", BREAKER_MACHINE),
        migrations.RunSQL(FIXED, FIXED_BACK),
    ]
