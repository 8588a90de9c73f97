"""What jobs paid by a contract need: the receipts sent to it, the keys that it believes, its periods, holds that end."""

import billing.fields
import django.db.models.deletion
import marketplace.foundation.clock
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0056_dispute_states'),
    ]

    operations = [
        migrations.CreateModel(
            name='ContractTerms',
            fields=[
                ('contract', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='periods', serialize=False, to='billing.escrowcontract')),
                ('challenge_seconds', models.PositiveBigIntegerField()),
                ('grace_seconds', models.PositiveBigIntegerField()),
                ('dispute_seconds', models.PositiveBigIntegerField()),
                ('fee_bps', models.PositiveIntegerField()),
            ],
        ),
        migrations.AddField(
            model_name='escrowhold',
            name='closing',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='closed_hold', to='billing.chaintransaction'),
        ),
        migrations.AddField(
            model_name='escrowhold',
            name='end_asked_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name='EscrowClaim',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('lease_id', models.UUIDField()),
                ('provider', models.CharField(max_length=42)),
                ('seq', models.PositiveBigIntegerField()),
                ('amount', billing.fields.AmountField()),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('hold', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='claims', to='billing.escrowhold')),
                ('transaction', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='claim', to='billing.chaintransaction')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('lease_id', 'seq'), name='escrow_claim_once')],
            },
        ),
        migrations.CreateModel(
            name='ReceiptKey',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('provider', models.CharField(max_length=42)),
                ('receipt_key', models.CharField(max_length=42)),
                ('not_after', billing.fields.AmountField()),
                ('contract', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='receipt_keys', to='billing.escrowcontract')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('contract', 'provider', 'receipt_key'), name='receipt_key_once')],
            },
        ),
    ]
