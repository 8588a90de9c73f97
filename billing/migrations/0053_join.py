"""Brings the rooms' migrations together; changes nothing."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0021_chain_states"),
        ("billing", "0052_price_rules"),
        ("billing", "0060_domain_of_evidence"),
    ]

    operations = []
