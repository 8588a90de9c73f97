"""Nodes, checks, link probes and releases begin in their first state and follow their edges, whoever writes."""

from django.db import migrations

from marketplace.foundation.state_triggers import enforce_states
from marketplace.nodes.states import CHECK_MACHINE, NODE_MACHINE, PROBE_MACHINE, RELEASE_MACHINE


class Migration(migrations.Migration):
    dependencies = [("nodes", "0001_tables"), ("foundation", "0002_rules")]

    replaces = [
        ("nodes", "0008_enforce_states"),
    ]

    operations = [
        enforce_states("nodes_node", NODE_MACHINE),
        enforce_states("nodes_check", CHECK_MACHINE),
        enforce_states("nodes_linkprobe", PROBE_MACHINE),
        enforce_states("nodes_agentrelease", RELEASE_MACHINE),
    ]
