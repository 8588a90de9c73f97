"""Top-ups, refunds, reversals and card disputes move along their machines' edges, whoever writes."""

from django.db import migrations

from billing.states.fiat import DISPUTE_MACHINE, REFUND_MACHINE, REVERSAL_MACHINE, TOP_UP_MACHINE
from marketplace.foundation.state_triggers import enforce_states


class Migration(migrations.Migration):
    dependencies = [("billing", "0030_fiat"), ("foundation", "0002_state_edges")]

    operations = [
        enforce_states("billing_topup", TOP_UP_MACHINE),
        enforce_states("billing_topuprefund", REFUND_MACHINE),
        enforce_states("billing_transferreversal", REVERSAL_MACHINE),
        enforce_states("billing_carddispute", DISPUTE_MACHINE),
    ]
