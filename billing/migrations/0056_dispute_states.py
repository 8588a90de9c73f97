"""A dispute begins opened and moves along its machine's edges, whoever writes."""

from django.db import migrations

from billing.states import DISPUTE_MACHINE
from marketplace.foundation.state_triggers import enforce_states


class Migration(migrations.Migration):
    dependencies = [("billing", "0055_fault_rules"), ("foundation", "0002_state_edges")]

    operations = [enforce_states("billing_dispute", DISPUTE_MACHINE)]
