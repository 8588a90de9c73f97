import billing.fields
import django.db.models.deletion
import django.db.models.expressions
import marketplace.foundation.clock
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        # The default of Transfer.seq draws from it, so it has to be there first.
        migrations.RunSQL('CREATE SEQUENCE billing_transfer_seq', 'DROP SEQUENCE billing_transfer_seq'),
        migrations.CreateModel(
            name='Asset',
            fields=[
                ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ('code', models.CharField(max_length=16, unique=True)),
                ('scale', models.PositiveSmallIntegerField()),
                ('kind', models.CharField(choices=[('fiat', 'Fiat'), ('erc20', 'Erc20')], max_length=8)),
                ('chain_id', models.PositiveBigIntegerField(blank=True, null=True)),
                ('contract', models.CharField(blank=True, max_length=42)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ['fiat', 'erc20'])), name='asset_kind_known'), models.CheckConstraint(condition=models.Q(models.Q(('chain_id', None), ('contract', ''), ('kind', 'fiat')), models.Q(('chain_id__isnull', False), ('kind', 'erc20'), models.Q(('contract', ''), _negated=True)), _connector='OR'), name='asset_of_a_chain_names_it')],
            },
        ),
        migrations.CreateModel(
            name='Account',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('customer_available', 'Customer Available'), ('job_hold', 'Job Hold'), ('provider_pending', 'Provider Pending'), ('provider_available', 'Provider Available'), ('provider_reserve', 'Provider Reserve'), ('provider_stake', 'Provider Stake'), ('payout_clearing', 'Payout Clearing'), ('fee_revenue', 'Fee Revenue'), ('operator_cash', 'Operator Cash'), ('stripe_balance', 'Stripe Balance'), ('stripe_in_transit', 'Stripe In Transit'), ('chain_escrow', 'Chain Escrow'), ('chain_hot_wallet', 'Chain Hot Wallet'), ('stripe_fee_expense', 'Stripe Fee Expense'), ('gas_expense', 'Gas Expense'), ('chargeback_loss', 'Chargeback Loss'), ('promo_expense', 'Promo Expense'), ('rounding', 'Rounding'), ('slash_pool', 'Slash Pool'), ('insurance_pool', 'Insurance Pool'), ('liquidity', 'Liquidity')], max_length=24)),
                ('owner_id', models.UUIDField(blank=True, null=True)),
                ('job_id', models.UUIDField(blank=True, null=True)),
                ('debits_pending', billing.fields.AmountField(default=0, editable=False)),
                ('debits_posted', billing.fields.AmountField(default=0, editable=False)),
                ('credits_pending', billing.fields.AmountField(default=0, editable=False)),
                ('credits_posted', billing.fields.AmountField(default=0, editable=False)),
                ('is_nonnegative', models.BooleanField()),
                ('is_frozen', models.BooleanField(default=False)),
                ('is_summed', models.BooleanField(default=True)),
                ('rolled_seq', models.PositiveBigIntegerField(default=0, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('asset', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='accounts', to='billing.asset')),
            ],
        ),
        migrations.CreateModel(
            name='ChainBlock',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('chain_id', models.PositiveBigIntegerField()),
                ('number', models.PositiveBigIntegerField()),
                ('hash', models.CharField(max_length=66)),
                ('parent_hash', models.CharField(max_length=66)),
                ('state', models.CharField(choices=[('seen', 'Seen'), ('safe', 'Safe'), ('final', 'Final'), ('orphaned', 'Orphaned')], default='seen', max_length=16)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('chain_id', 'hash'), name='chain_block_once'), models.UniqueConstraint(condition=models.Q(('state', 'final')), fields=('chain_id', 'number'), name='one_final_block_per_number'), models.CheckConstraint(condition=models.Q(('state__in', ['seen', 'safe', 'final', 'orphaned'])), name='chain_block_state_known')],
            },
        ),
        migrations.CreateModel(
            name='ChainEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tx_hash', models.CharField(max_length=66)),
                ('log_index', models.PositiveIntegerField()),
                ('contract', models.CharField(max_length=42)),
                ('name', models.CharField(max_length=64)),
                ('arguments', models.JSONField(default=dict)),
                ('processed_at', models.DateTimeField(blank=True, null=True)),
                ('block', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='events', to='billing.chainblock')),
            ],
        ),
        migrations.CreateModel(
            name='ChainTransaction',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('chain_id', models.PositiveBigIntegerField()),
                ('signer', models.CharField(max_length=42)),
                ('nonce', models.PositiveBigIntegerField(blank=True, null=True)),
                ('raw', models.TextField(blank=True)),
                ('hash', models.CharField(blank=True, max_length=66)),
                ('fees', models.JSONField(default=dict)),
                ('state', models.CharField(choices=[('planned', 'Planned'), ('nonced', 'Nonced'), ('signed', 'Signed'), ('broadcast', 'Broadcast'), ('mined', 'Mined'), ('final', 'Final'), ('replaced', 'Replaced'), ('reorged', 'Reorged'), ('reverted', 'Reverted')], default='planned', max_length=16)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('replaces', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='replaced_by', to='billing.chaintransaction')),
            ],
        ),
        migrations.CreateModel(
            name='DailyRoot',
            fields=[
                ('day', models.DateField(primary_key=True, serialize=False)),
                ('first_seq', models.PositiveBigIntegerField(unique=True)),
                ('last_seq', models.PositiveBigIntegerField(unique=True)),
                ('transfers', models.PositiveBigIntegerField()),
                ('root', models.CharField(max_length=64)),
                ('sealed_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('last_seq__gte', models.F('first_seq'))), name='daily_root_range')],
            },
        ),
        migrations.CreateModel(
            name='Hold',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('owner_id', models.UUIDField()),
                ('job_id', models.UUIDField(db_index=True)),
                ('amount_usd_micros', billing.fields.AmountField()),
                ('state', models.CharField(choices=[('open', 'Open'), ('captured', 'Captured'), ('released', 'Released'), ('expired', 'Expired')], default='open', max_length=16)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('job_id',), name='one_open_hold_per_job'), models.CheckConstraint(condition=models.Q(('state__in', ['open', 'captured', 'released', 'expired'])), name='hold_state_known'), models.CheckConstraint(condition=models.Q(('amount_usd_micros__gt', 0)), name='hold_amount_positive'), models.CheckConstraint(condition=models.Q(models.Q(('closed_at', None), ('state', 'open')), models.Q(models.Q(('state', 'open'), _negated=True), ('closed_at__isnull', False)), _connector='OR'), name='hold_closed_has_its_time')],
            },
        ),
        migrations.CreateModel(
            name='ReceiptEvidence',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('job_id', models.UUIDField()),
                ('lease_id', models.UUIDField(db_index=True)),
                ('seq', models.PositiveBigIntegerField()),
                ('signer', models.CharField(max_length=42)),
                ('accepted_digest', models.CharField(max_length=66)),
                ('other_digest', models.CharField(max_length=66)),
                ('accepted', models.JSONField()),
                ('other', models.JSONField()),
                ('found_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
            options={
                'verbose_name_plural': 'receipt evidence',
                'constraints': [models.UniqueConstraint(fields=('lease_id', 'seq', 'other_digest'), name='evidence_once')],
            },
        ),
        migrations.CreateModel(
            name='Settlement',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('job_id', models.UUIDField(unique=True)),
                ('owner_id', models.UUIDField()),
                ('fee_bps', models.PositiveIntegerField()),
                ('held_usd_micros', billing.fields.AmountField()),
                ('charged_usd_micros', billing.fields.AmountField()),
                ('fee_usd_micros', billing.fields.AmountField()),
                ('paid_usd_micros', billing.fields.AmountField()),
                ('refunded_usd_micros', billing.fields.AmountField()),
                ('challenge_until', models.DateTimeField()),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('hold', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='settlement', to='billing.hold')),
            ],
        ),
        migrations.CreateModel(
            name='SettlementShare',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('lease_id', models.UUIDField(unique=True)),
                ('provider_id', models.UUIDField(db_index=True)),
                ('charged_usd_micros', billing.fields.AmountField()),
                ('fee_usd_micros', billing.fields.AmountField()),
                ('paid_usd_micros', billing.fields.AmountField()),
                ('challenge_until', models.DateTimeField()),
                ('released_at', models.DateTimeField(blank=True, null=True)),
                ('settlement', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='shares', to='billing.settlement')),
            ],
        ),
        migrations.CreateModel(
            name='StripeEvent',
            fields=[
                ('event_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('type', models.CharField(max_length=120)),
                ('account', models.CharField(blank=True, max_length=255)),
                ('created', models.DateTimeField()),
                ('payload', models.JSONField()),
                ('received_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('processed_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('processed_at', None)), fields=['received_at'], name='stripe_event_unprocessed')],
            },
        ),
        migrations.CreateModel(
            name='Transfer',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('group_id', models.UUIDField()),
                ('amount', billing.fields.AmountField()),
                ('mode', models.CharField(choices=[('single', 'Single'), ('pending', 'Pending'), ('post', 'Post'), ('void', 'Void')], default='single', max_length=8)),
                ('code', models.CharField(choices=[('deposit', 'Deposit'), ('hold', 'Hold'), ('hold_extension', 'Hold Extension'), ('hold_release', 'Hold Release'), ('provider_pay', 'Provider Pay'), ('platform_fee', 'Platform Fee'), ('hold_rest', 'Hold Rest'), ('challenge_passed', 'Challenge Passed'), ('payout', 'Payout'), ('payout_cost', 'Payout Cost'), ('chargeback', 'Chargeback'), ('slash', 'Slash'), ('exchange', 'Exchange'), ('correction', 'Correction')], max_length=24)),
                ('job_id', models.UUIDField(blank=True, null=True)),
                ('external_ref', models.CharField(blank=True, max_length=200)),
                ('effective_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('seq', models.BigIntegerField(db_default=models.Func(models.Value('billing_transfer_seq'), function='nextval'), editable=False, unique=True)),
                ('prev_hash', models.CharField(blank=True, editable=False, max_length=64, null=True)),
                ('hash', models.CharField(blank=True, editable=False, max_length=64, null=True)),
                ('asset', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.asset')),
                ('credit', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='credits', to='billing.account')),
                ('debit', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='debits', to='billing.account')),
                ('pending', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='resolutions', to='billing.transfer')),
            ],
            options={
                'ordering': ['-seq'],
            },
        ),
        migrations.CreateModel(
            name='Payout',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('provider_id', models.UUIDField(db_index=True)),
                ('rail', models.CharField(max_length=16)),
                ('amount', billing.fields.AmountField()),
                ('state', models.CharField(choices=[('requested', 'Requested'), ('reserved', 'Reserved'), ('submitted', 'Submitted'), ('confirmed', 'Confirmed'), ('failed', 'Failed'), ('returned', 'Returned')], default='requested', max_length=16)),
                ('destination', models.CharField(max_length=200)),
                ('external_id', models.CharField(blank=True, max_length=200)),
                ('last_error', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('asset', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.asset')),
                ('pending_transfer', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='payout', to='billing.transfer')),
            ],
        ),
        migrations.CreateModel(
            name='Deposit',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('owner_id', models.UUIDField()),
                ('amount_usd_micros', billing.fields.AmountField()),
                ('rail', models.CharField(default='operator', max_length=16)),
                ('reference', models.CharField(max_length=200)),
                ('actor', models.CharField(max_length=120)),
                ('created_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
                ('transfer', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='deposit', to='billing.transfer')),
            ],
        ),
        migrations.CreateModel(
            name='UsageReceipt',
            fields=[
                ('id', models.UUIDField(default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('job_id', models.UUIDField(db_index=True)),
                ('lease_id', models.UUIDField()),
                ('seq', models.PositiveBigIntegerField()),
                ('billable_ms', models.PositiveBigIntegerField()),
                ('cumulative_amount', billing.fields.AmountField()),
                ('provider', models.CharField(max_length=42)),
                ('customer', models.CharField(max_length=42)),
                ('asset', models.CharField(max_length=42)),
                ('meter_hash', models.CharField(max_length=66)),
                ('prev_digest', models.CharField(max_length=66)),
                ('digest', models.CharField(max_length=66, unique=True)),
                ('signature', models.CharField(max_length=132)),
                ('signer', models.CharField(max_length=42)),
                ('received_at', models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
            options={
                'ordering': ['lease_id', 'seq'],
                'constraints': [models.UniqueConstraint(fields=('lease_id', 'seq'), name='one_receipt_per_seq'), models.CheckConstraint(condition=models.Q(('seq__gte', 1)), name='receipt_seq_from_one'), models.CheckConstraint(condition=models.Q(('cumulative_amount__gte', 0)), name='receipt_amount_nonnegative')],
            },
        ),
        migrations.AddIndex(
            model_name='account',
            index=models.Index(fields=['owner_id', 'kind'], name='account_of_owner'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.UniqueConstraint(fields=('kind', 'owner_id', 'job_id', 'asset'), name='account_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.UniqueConstraint(fields=('id', 'asset'), name='account_asset'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['customer_available', 'job_hold', 'provider_pending', 'provider_available', 'provider_reserve', 'provider_stake', 'payout_clearing', 'fee_revenue', 'operator_cash', 'stripe_balance', 'stripe_in_transit', 'chain_escrow', 'chain_hot_wallet', 'stripe_fee_expense', 'gas_expense', 'chargeback_loss', 'promo_expense', 'rounding', 'slash_pool', 'insurance_pool', 'liquidity'])), name='account_kind_known'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.CheckConstraint(condition=models.Q(('credits_pending__gte', 0), ('credits_posted__gte', 0), ('debits_pending__gte', 0), ('debits_posted__gte', 0)), name='account_sums_nonnegative'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.CheckConstraint(condition=models.Q(('is_nonnegative', False), ('credits_posted__gte', django.db.models.expressions.CombinedExpression(models.F('debits_posted'), '+', models.F('debits_pending'))), _connector='OR'), name='account_not_overdrawn'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.CheckConstraint(condition=models.Q(('owner_id__isnull', False), models.Q(('kind__in', ['customer_available', 'job_hold', 'payout_clearing', 'provider_available', 'provider_pending', 'provider_reserve', 'provider_stake']), _negated=True), _connector='OR'), name='account_has_its_owner'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.CheckConstraint(condition=models.Q(('is_nonnegative', True), models.Q(('kind__in', ['customer_available', 'job_hold', 'payout_clearing', 'provider_available', 'provider_pending', 'provider_reserve', 'provider_stake']), _negated=True), _connector='OR'), name='account_of_others_money_nonnegative'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('job_id__isnull', False), ('kind', 'job_hold')), models.Q(models.Q(('kind', 'job_hold'), _negated=True), ('job_id', None)), _connector='OR'), name='account_of_a_job_is_its_hold'),
        ),
        migrations.AddConstraint(
            model_name='account',
            constraint=models.CheckConstraint(condition=models.Q(('is_summed', True), ('is_nonnegative', False), _connector='OR'), name='account_without_sum_has_no_floor'),
        ),
        migrations.AddConstraint(
            model_name='chainevent',
            constraint=models.UniqueConstraint(fields=('tx_hash', 'log_index', 'block'), name='chain_event_once'),
        ),
        migrations.AddConstraint(
            model_name='chaintransaction',
            constraint=models.UniqueConstraint(fields=('signer', 'chain_id', 'nonce', 'hash'), name='chain_transaction_once'),
        ),
        migrations.AddConstraint(
            model_name='chaintransaction',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'final')), fields=('signer', 'chain_id', 'nonce'), name='one_final_per_nonce'),
        ),
        migrations.AddConstraint(
            model_name='chaintransaction',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['planned', 'nonced', 'signed', 'broadcast', 'mined', 'final', 'replaced', 'reorged', 'reverted'])), name='chain_transaction_state_known'),
        ),
        migrations.AddConstraint(
            model_name='chaintransaction',
            constraint=models.CheckConstraint(condition=models.Q(('replaces', None), models.Q(('replaces', models.F('id')), _negated=True), _connector='OR'), name='chain_transaction_replaces_another'),
        ),
        migrations.AddConstraint(
            model_name='settlement',
            constraint=models.CheckConstraint(condition=models.Q(('charged_usd_micros__gte', 0), ('fee_usd_micros__gte', 0), ('paid_usd_micros__gte', 0), ('refunded_usd_micros__gte', 0)), name='settlement_amounts_nonnegative'),
        ),
        migrations.AddConstraint(
            model_name='settlement',
            constraint=models.CheckConstraint(condition=models.Q(('held_usd_micros', django.db.models.expressions.CombinedExpression(models.F('charged_usd_micros'), '+', models.F('refunded_usd_micros')))), name='settlement_splits_the_hold'),
        ),
        migrations.AddConstraint(
            model_name='settlement',
            constraint=models.CheckConstraint(condition=models.Q(('charged_usd_micros', django.db.models.expressions.CombinedExpression(models.F('fee_usd_micros'), '+', models.F('paid_usd_micros')))), name='settlement_splits_the_charge'),
        ),
        migrations.AddConstraint(
            model_name='settlement',
            constraint=models.CheckConstraint(condition=models.Q(('fee_bps__lte', 10000)), name='settlement_fee_bps_range'),
        ),
        migrations.AddIndex(
            model_name='settlementshare',
            index=models.Index(condition=models.Q(('released_at', None)), fields=['challenge_until'], name='share_waiting_for_release'),
        ),
        migrations.AddConstraint(
            model_name='settlementshare',
            constraint=models.CheckConstraint(condition=models.Q(('charged_usd_micros__gte', 0), ('fee_usd_micros__gte', 0), ('paid_usd_micros__gte', 0)), name='share_amounts_nonnegative'),
        ),
        migrations.AddConstraint(
            model_name='settlementshare',
            constraint=models.CheckConstraint(condition=models.Q(('charged_usd_micros', django.db.models.expressions.CombinedExpression(models.F('fee_usd_micros'), '+', models.F('paid_usd_micros')))), name='share_splits_its_charge'),
        ),
        migrations.AddIndex(
            model_name='transfer',
            index=models.Index(fields=['debit', 'seq'], name='transfer_debits'),
        ),
        migrations.AddIndex(
            model_name='transfer',
            index=models.Index(fields=['credit', 'seq'], name='transfer_credits'),
        ),
        migrations.AddIndex(
            model_name='transfer',
            index=models.Index(condition=models.Q(('job_id__isnull', False)), fields=['job_id'], name='transfer_of_job'),
        ),
        migrations.AddIndex(
            model_name='transfer',
            index=models.Index(condition=models.Q(('hash', None)), fields=['seq'], name='transfer_unsealed'),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.UniqueConstraint(condition=models.Q(('pending__isnull', False)), fields=('pending',), name='pending_resolved_once'),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gt', 0)), name='transfer_amount_positive'),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.CheckConstraint(condition=models.Q(('debit', models.F('credit')), _negated=True), name='transfer_between_two_accounts'),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.CheckConstraint(condition=models.Q(('mode__in', ['single', 'pending', 'post', 'void'])), name='transfer_mode_known'),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.CheckConstraint(condition=models.Q(('code__in', ['deposit', 'hold', 'hold_extension', 'hold_release', 'provider_pay', 'platform_fee', 'hold_rest', 'challenge_passed', 'payout', 'payout_cost', 'chargeback', 'slash', 'exchange', 'correction'])), name='transfer_code_known'),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('mode__in', ['post', 'void']), ('pending__isnull', False)), models.Q(('mode__in', ['single', 'pending']), ('pending', None)), _connector='OR'), name='transfer_resolution_names_its_pending'),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('hash', None), ('prev_hash', None)), models.Q(('hash__isnull', False), ('prev_hash__isnull', False)), _connector='OR'), name='transfer_sealed_whole'),
        ),
        migrations.AddConstraint(
            model_name='payout',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['requested', 'reserved', 'submitted', 'confirmed', 'failed', 'returned'])), name='payout_state_known'),
        ),
        migrations.AddConstraint(
            model_name='payout',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gt', 0)), name='payout_amount_positive'),
        ),
        migrations.AddConstraint(
            model_name='deposit',
            constraint=models.UniqueConstraint(fields=('rail', 'reference'), name='deposit_once_per_reference'),
        ),
        migrations.AddConstraint(
            model_name='deposit',
            constraint=models.CheckConstraint(condition=models.Q(('amount_usd_micros__gt', 0)), name='deposit_amount_positive'),
        ),
        migrations.AddConstraint(
            model_name='deposit',
            constraint=models.CheckConstraint(condition=models.Q(('reference', ''), _negated=True), name='deposit_has_a_reference'),
        ),
    ]
