"""A hold that we could not open may still be opened by the customer: the database allows the edge."""

from django.db import migrations

from billing.states.chain import ESCROW_HOLD_MACHINE
from marketplace.foundation.state_triggers import enforce_states


class Migration(migrations.Migration):
    dependencies = [("billing", "0060_escrow_of_jobs"), ("foundation", "0002_state_edges")]

    operations = [enforce_states("billing_escrowhold", ESCROW_HOLD_MACHINE)]
