"""Payouts: where to, what is kept back, what the outside said, and the breaker that stops them."""

import billing.fields
import django.db.models.deletion
import marketplace.foundation.clock
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("billing", "0032_refund_shortages")]

    operations = [
        migrations.CreateModel(
            name='Difference',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('rail', models.CharField(max_length=16)),
                ('kind', models.CharField(choices=[('missing_inside', 'Missing Inside'), ('missing_outside', 'Missing Outside'), ('amount', 'Amount'), ('position', 'Position')], max_length=16)),
                ('account_kind', models.CharField(choices=[('customer_available', 'Customer Available'), ('job_hold', 'Job Hold'), ('provider_pending', 'Provider Pending'), ('provider_available', 'Provider Available'), ('provider_reserve', 'Provider Reserve'), ('provider_stake', 'Provider Stake'), ('payout_clearing', 'Payout Clearing'), ('customer_promotion', 'Customer Promotion'), ('wallet_available', 'Wallet Available'), ('wallet_held', 'Wallet Held'), ('wallet_pending', 'Wallet Pending'), ('wallet_stake', 'Wallet Stake'), ('fee_revenue', 'Fee Revenue'), ('operator_cash', 'Operator Cash'), ('disputed', 'Disputed'), ('stripe_balance', 'Stripe Balance'), ('stripe_in_transit', 'Stripe In Transit'), ('chain_escrow', 'Chain Escrow'), ('chain_hot_wallet', 'Chain Hot Wallet'), ('stripe_fee_expense', 'Stripe Fee Expense'), ('gas_expense', 'Gas Expense'), ('chargeback_loss', 'Chargeback Loss'), ('promo_expense', 'Promo Expense'), ('rounding', 'Rounding'), ('slash_pool', 'Slash Pool'), ('insurance_pool', 'Insurance Pool'), ('liquidity', 'Liquidity')], max_length=24)),
                ('ref', models.CharField(blank=True, max_length=200)),
                ('ledger', billing.fields.AmountField(default=0)),
                ('outside', billing.fields.AmountField(default=0)),
                ('explanation', models.CharField(blank=True, max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name='FakeMovement',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('ref', models.CharField(max_length=200, unique=True)),
                ('payout_id', models.UUIDField(db_index=True)),
                ('amount', billing.fields.AmountField()),
                ('at', models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
        ),
        migrations.CreateModel(
            name='PayoutBreaker',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('open', 'Open'), ('closed', 'Closed')], default='open', max_length=8)),
                ('cause', models.CharField(max_length=200)),
                ('opened_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('closed_by', models.CharField(blank=True, max_length=120)),
                ('note', models.TextField(blank=True)),
            ],
        ),
        migrations.CreateModel(
            name='PayoutSettings',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('provider_id', models.UUIDField()),
                ('rail', models.CharField(max_length=16)),
                ('destination', models.CharField(max_length=200)),
                ('next_rail', models.CharField(blank=True, max_length=16)),
                ('next_destination', models.CharField(blank=True, max_length=200)),
                ('next_from', models.DateTimeField(blank=True, null=True)),
                ('schedule', models.CharField(choices=[('daily', 'Daily'), ('weekly', 'Weekly'), ('manual', 'Manual')], default='daily', max_length=8)),
                ('minimum', billing.fields.AmountField()),
                ('due_at', models.DateTimeField(blank=True, null=True)),
                ('failures', models.PositiveSmallIntegerField(default=0)),
                ('last_error', models.TextField(blank=True)),
                ('version', models.PositiveIntegerField(default=1)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('updated_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
            options={
                'verbose_name_plural': 'payout settings',
            },
        ),
        migrations.CreateModel(
            name='Position',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('rail', models.CharField(max_length=16)),
                ('kind', models.CharField(choices=[('customer_available', 'Customer Available'), ('job_hold', 'Job Hold'), ('provider_pending', 'Provider Pending'), ('provider_available', 'Provider Available'), ('provider_reserve', 'Provider Reserve'), ('provider_stake', 'Provider Stake'), ('payout_clearing', 'Payout Clearing'), ('customer_promotion', 'Customer Promotion'), ('wallet_available', 'Wallet Available'), ('wallet_held', 'Wallet Held'), ('wallet_pending', 'Wallet Pending'), ('wallet_stake', 'Wallet Stake'), ('fee_revenue', 'Fee Revenue'), ('operator_cash', 'Operator Cash'), ('disputed', 'Disputed'), ('stripe_balance', 'Stripe Balance'), ('stripe_in_transit', 'Stripe In Transit'), ('chain_escrow', 'Chain Escrow'), ('chain_hot_wallet', 'Chain Hot Wallet'), ('stripe_fee_expense', 'Stripe Fee Expense'), ('gas_expense', 'Gas Expense'), ('chargeback_loss', 'Chargeback Loss'), ('promo_expense', 'Promo Expense'), ('rounding', 'Rounding'), ('slash_pool', 'Slash Pool'), ('insurance_pool', 'Insurance Pool'), ('liquidity', 'Liquidity')], max_length=24)),
                ('ledger', billing.fields.AmountField()),
                ('outside', billing.fields.AmountField()),
            ],
        ),
        migrations.CreateModel(
            name='Reconciliation',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('started_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('ended_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('reason', models.CharField(max_length=32)),
                ('unexplained', models.PositiveIntegerField(default=0)),
                ('unanswered', models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='ReserveSlice',
            fields=[
                ('share', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='reserve_slice', serialize=False, to='billing.settlementshare')),
                ('provider_id', models.UUIDField()),
                ('amount', billing.fields.AmountField()),
                ('release_at', models.DateTimeField()),
                ('released_at', models.DateTimeField(blank=True, null=True)),
                ('released', billing.fields.AmountField(default=0)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
        ),
        migrations.AddField(
            model_name='payout',
            name='batch_id',
            field=models.UUIDField(blank=True, db_index=True, null=True),
        ),
        migrations.AddField(
            model_name='payout',
            name='checked_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='payout',
            name='cost',
            field=billing.fields.AmountField(default=0),
        ),
        migrations.AddField(
            model_name='payout',
            name='retry_of',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='retry', to='billing.payout'),
        ),
        migrations.AddIndex(
            model_name='payout',
            index=models.Index(fields=['provider_id', '-created_at'], name='payouts_of_provider'),
        ),
        migrations.AddIndex(
            model_name='payout',
            index=models.Index(condition=models.Q(('state__in', ['reserved', 'submitted'])), fields=['rail', 'checked_at'], name='payouts_followed'),
        ),
        migrations.AddConstraint(
            model_name='payout',
            constraint=models.CheckConstraint(condition=models.Q(('cost__gte', 0)), name='payout_cost_nonnegative'),
        ),
        migrations.AddConstraint(
            model_name='payout',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['requested', 'reserved', 'submitted'])), fields=('provider_id', 'asset'), name='one_payout_under_way'),
        ),
        migrations.AddConstraint(
            model_name='payout',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['requested', 'failed']), ('pending_transfer__isnull', False), _connector='OR'), name='payout_reserves_before_it_leaves'),
        ),
        migrations.AddField(
            model_name='difference',
            name='asset',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.asset'),
        ),
        migrations.AddField(
            model_name='fakemovement',
            name='asset',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.asset'),
        ),
        migrations.AddField(
            model_name='payoutsettings',
            name='asset',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.asset'),
        ),
        migrations.AddField(
            model_name='position',
            name='asset',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.asset'),
        ),
        migrations.AddIndex(
            model_name='reconciliation',
            index=models.Index(fields=['-started_at'], name='reconciliation_newest'),
        ),
        migrations.AddField(
            model_name='position',
            name='reconciliation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='positions', to='billing.reconciliation'),
        ),
        migrations.AddField(
            model_name='payoutbreaker',
            name='reconciliation',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='breakers', to='billing.reconciliation'),
        ),
        migrations.AddField(
            model_name='difference',
            name='reconciliation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='differences', to='billing.reconciliation'),
        ),
        migrations.AddField(
            model_name='reserveslice',
            name='asset',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.asset'),
        ),
        migrations.AddIndex(
            model_name='fakemovement',
            index=models.Index(fields=['at'], name='fake_movement_at'),
        ),
        migrations.AddIndex(
            model_name='payoutsettings',
            index=models.Index(condition=models.Q(('due_at__isnull', False)), fields=['due_at'], name='payout_settings_due'),
        ),
        migrations.AddConstraint(
            model_name='payoutsettings',
            constraint=models.UniqueConstraint(fields=('provider_id', 'asset'), name='payout_settings_once'),
        ),
        migrations.AddConstraint(
            model_name='payoutsettings',
            constraint=models.CheckConstraint(condition=models.Q(('schedule__in', ['daily', 'weekly', 'manual'])), name='payout_schedule_known'),
        ),
        migrations.AddConstraint(
            model_name='payoutsettings',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('due_at', None), ('schedule', 'manual')), models.Q(models.Q(('schedule', 'manual'), _negated=True), ('due_at__isnull', False)), _connector='OR'), name='payout_schedule_has_its_time'),
        ),
        migrations.AddConstraint(
            model_name='payoutsettings',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('next_destination', ''), ('next_from', None), ('next_rail', '')), models.Q(('next_from__isnull', False), models.Q(('next_destination', ''), _negated=True), models.Q(('next_rail', ''), _negated=True)), _connector='OR'), name='next_destination_has_its_time'),
        ),
        migrations.AddConstraint(
            model_name='payoutsettings',
            constraint=models.CheckConstraint(condition=models.Q(('minimum__gte', 0)), name='payout_minimum_nonnegative'),
        ),
        migrations.AddConstraint(
            model_name='payoutsettings',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('destination', ''), _negated=True), models.Q(('rail', ''), _negated=True)), name='payout_settings_name_a_place'),
        ),
        migrations.AddConstraint(
            model_name='position',
            constraint=models.UniqueConstraint(fields=('reconciliation', 'kind', 'asset'), name='position_once'),
        ),
        migrations.AddConstraint(
            model_name='payoutbreaker',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('state',), name='one_open_breaker'),
        ),
        migrations.AddConstraint(
            model_name='payoutbreaker',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['open', 'closed'])), name='breaker_state_known'),
        ),
        migrations.AddConstraint(
            model_name='payoutbreaker',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('closed_at', None), ('state', 'open')), models.Q(('closed_at__isnull', False), ('state', 'closed'), models.Q(('note', ''), _negated=True)), _connector='OR'), name='breaker_closed_with_a_note'),
        ),
        migrations.AddConstraint(
            model_name='difference',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['missing_inside', 'missing_outside', 'amount', 'position'])), name='difference_kind_known'),
        ),
        migrations.AddIndex(
            model_name='reserveslice',
            index=models.Index(condition=models.Q(('released_at', None)), fields=['release_at'], name='reserve_slice_ripens'),
        ),
        migrations.AddIndex(
            model_name='reserveslice',
            index=models.Index(fields=['provider_id', 'asset'], name='reserve_slice_of_provider'),
        ),
        migrations.AddConstraint(
            model_name='reserveslice',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gte', 0), ('released__gte', 0), ('released__lte', models.F('amount'))), name='reserve_slice_releases_its_amount_at_most'),
        ),
    ]
