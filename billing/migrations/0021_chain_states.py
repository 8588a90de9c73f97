"""Transactions, roots and holds of the chain begin in their first state and move along their edges, whoever writes."""

from django.db import migrations

from billing.states.chain import ESCROW_HOLD_MACHINE, ROOT_MACHINE, TRANSACTION_MACHINE
from marketplace.foundation.state_triggers import enforce_states


class Migration(migrations.Migration):
    dependencies = [("billing", "0020_chain"), ("foundation", "0002_state_edges")]

    operations = [
        enforce_states("billing_chaintransaction", TRANSACTION_MACHINE),
        enforce_states("billing_payoutroot", ROOT_MACHINE),
        enforce_states("billing_escrowhold", ESCROW_HOLD_MACHINE),
    ]
