"""The database holds quotes, leases and delegations to what their columns mean."""

import billing.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0001_initial'),
        ('billing', '0004_kinds_of_the_outside'),
        ('jobs', '0004_payment_in_dollars'),
        ('nodes', '0001_initial'),
    ]

    operations = [
        migrations.AlterField(
            model_name='lease',
            name='cap_units',
            field=billing.fields.AmountField(),
        ),
        migrations.AlterField(
            model_name='lease',
            name='rate_units_per_hour',
            field=billing.fields.AmountField(),
        ),
        migrations.AlterField(
            model_name='quote',
            name='price_source',
            field=models.CharField(blank=True, max_length=40),
        ),
        migrations.AddConstraint(
            model_name='lease',
            constraint=models.CheckConstraint(condition=models.Q(('charge_units', None), models.Q(('charge_units__gte', 0), ('charge_units__lte', models.F('cap_units'))), _connector='OR'), name='lease_charge_units_within_cap'),
        ),
        migrations.AddConstraint(
            model_name='lease',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('asset', 1), _negated=True), models.Q(('cap_units', models.F('cap_usd_micros')), ('rate_units_per_hour', models.F('rate_usd_micros_per_hour')), models.Q(models.Q(('charge_units', None), ('charge_usd_micros', None)), models.Q(('charge_units__isnull', False), ('charge_usd_micros__isnull', False), ('charge_units', models.F('charge_usd_micros'))), _connector='OR')), _connector='OR'), name='lease_in_dollars_counts_in_dollars'),
        ),
        migrations.AddConstraint(
            model_name='lease',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('asset', 1), ('payment', {})), models.Q(models.Q(('asset', 1), _negated=True), models.Q(('payment', {}), _negated=True)), _connector='OR'), name='lease_in_a_token_has_its_terms'),
        ),
        migrations.AddConstraint(
            model_name='quote',
            constraint=models.CheckConstraint(condition=models.Q(('usd_micros_per_token__gt', 0), models.Q(models.Q(('asset', 1), ('usd_micros_per_token', 1000000)), models.Q(models.Q(('asset', 1), _negated=True), models.Q(('price_source', ''), _negated=True), ('price_observed_at__isnull', False)), _connector='OR')), name='quote_in_a_token_has_its_price'),
        ),
        migrations.AddConstraint(
            model_name='receiptdelegation',
            constraint=models.UniqueConstraint(fields=('chain_id', 'contract', 'wallet', 'nonce'), name='delegation_nonce_once'),
        ),
        migrations.AddConstraint(
            model_name='receiptdelegation',
            constraint=models.UniqueConstraint(condition=models.Q(('revoked_at', None)), fields=('node', 'asset'), name='one_delegation_per_node_and_asset'),
        ),
    ]
