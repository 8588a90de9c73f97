"""Slashes of stakes begin waiting and move along their edges, whoever writes."""

from django.db import migrations

from billing.states.chain import STAKE_SLASH_MACHINE
from marketplace.foundation.state_triggers import enforce_states


class Migration(migrations.Migration):
    dependencies = [("billing", "0063_stake_slashes"), ("foundation", "0002_state_edges")]

    operations = [enforce_states("billing_stakeslash", STAKE_SLASH_MACHINE)]
