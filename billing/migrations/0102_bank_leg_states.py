"""Bank legs move along their machine's edges, whoever writes."""

from django.db import migrations

from billing.states import BANK_MACHINE
from marketplace.foundation.state_triggers import enforce_states


class Migration(migrations.Migration):
    dependencies = [("billing", "0101_bank_legs"), ("foundation", "0002_state_edges")]

    operations = [enforce_states("billing_bankleg", BANK_MACHINE)]
