"""Transfers may be for storage."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0103_fraud_warnings'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='transfer',
            name='transfer_code_known',
        ),
        migrations.AlterField(
            model_name='transfer',
            name='code',
            field=models.CharField(choices=[('deposit', 'Deposit'), ('deposit_cost', 'Deposit Cost'), ('deposit_refund', 'Deposit Refund'), ('hold', 'Hold'), ('hold_extension', 'Hold Extension'), ('hold_release', 'Hold Release'), ('provider_pay', 'Provider Pay'), ('platform_fee', 'Platform Fee'), ('hold_rest', 'Hold Rest'), ('challenge_passed', 'Challenge Passed'), ('reserve_kept', 'Reserve Kept'), ('reserve_released', 'Reserve Released'), ('payout', 'Payout'), ('payout_cost', 'Payout Cost'), ('payout_returned', 'Payout Returned'), ('rail_move', 'Rail Move'), ('gas', 'Gas'), ('chargeback', 'Chargeback'), ('chargeback_won', 'Chargeback Won'), ('chargeback_recovery', 'Chargeback Recovery'), ('dispute_frozen', 'Dispute Frozen'), ('dispute_to_provider', 'Dispute To Provider'), ('dispute_to_customer', 'Dispute To Customer'), ('fault_refund', 'Fault Refund'), ('stake', 'Stake'), ('unstake', 'Unstake'), ('slash', 'Slash'), ('compensation', 'Compensation'), ('promotion', 'Promotion'), ('promotion_expired', 'Promotion Expired'), ('wallet_deposit', 'Wallet Deposit'), ('wallet_withdrawal', 'Wallet Withdrawal'), ('wallet_hold', 'Wallet Hold'), ('wallet_settled', 'Wallet Settled'), ('wallet_released', 'Wallet Released'), ('wallet_refund', 'Wallet Refund'), ('usage_pay', 'Usage Pay'), ('storage', 'Storage'), ('exchange', 'Exchange'), ('correction', 'Correction')], max_length=24),
        ),
        migrations.AddConstraint(
            model_name='transfer',
            constraint=models.CheckConstraint(condition=models.Q(('code__in', ['deposit', 'deposit_cost', 'deposit_refund', 'hold', 'hold_extension', 'hold_release', 'provider_pay', 'platform_fee', 'hold_rest', 'challenge_passed', 'reserve_kept', 'reserve_released', 'payout', 'payout_cost', 'payout_returned', 'rail_move', 'gas', 'chargeback', 'chargeback_won', 'chargeback_recovery', 'dispute_frozen', 'dispute_to_provider', 'dispute_to_customer', 'fault_refund', 'stake', 'unstake', 'slash', 'compensation', 'promotion', 'promotion_expired', 'wallet_deposit', 'wallet_withdrawal', 'wallet_hold', 'wallet_settled', 'wallet_released', 'wallet_refund', 'usage_pay', 'storage', 'exchange', 'correction'])), name='transfer_code_known'),
        ),
    ]
