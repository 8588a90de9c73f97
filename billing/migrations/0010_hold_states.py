"""A hold begins open and is closed once, whoever writes."""

from django.db import migrations

from billing.states import HOLD_MACHINE
from marketplace.foundation.state_triggers import enforce_states


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_disputed_shares"), ("foundation", "0002_state_edges")]

    operations = [enforce_states("billing_hold", HOLD_MACHINE)]
