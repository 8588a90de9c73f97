"""Accounts, transfers and everything else that is money: holds, settlements, rails, chains, invoices."""

import billing.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.text
import marketplace.foundation.clock
import marketplace.foundation.ids
from django.db import migrations, models

from marketplace.foundation.many_models import CreateModels

TABLES = CreateModels(
    migrations.CreateModel(
        name="Alert",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("key", models.CharField(max_length=200)),
            ("kind", models.CharField(max_length=64)),
            (
                "severity",
                models.CharField(
                    choices=[("info", "Info"), ("warning", "Warning"), ("critical", "Critical")], max_length=16
                ),
            ),
            ("subject", models.CharField(blank=True, max_length=200)),
            ("message", models.TextField()),
            ("noticed", models.PositiveIntegerField(default=1)),
            ("opened_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("noticed_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("acknowledged_at", models.DateTimeField(blank=True, null=True)),
            ("acknowledged_by", models.CharField(blank=True, max_length=120)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "indexes": [
                models.Index(condition=models.Q(("closed_at", None)), fields=["kind"], name="alert_open_by_kind")
            ],
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("closed_at", None)), fields=("key",), name="one_open_alert_per_key"
                ),
                models.CheckConstraint(
                    condition=models.Q(("severity__in", ["info", "warning", "critical"])), name="alert_severity_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(models.Q(("key", ""), _negated=True), models.Q(("kind", ""), _negated=True)),
                    name="alert_has_key_and_kind",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Asset",
        fields=[
            ("id", models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
            ("code", models.CharField(max_length=16, unique=True)),
            ("scale", models.PositiveSmallIntegerField()),
            (
                "kind",
                models.CharField(choices=[("fiat", "Fiat"), ("erc20", "Erc20"), ("native", "Native")], max_length=8),
            ),
            ("chain_id", models.PositiveBigIntegerField(blank=True, null=True)),
            ("contract", models.CharField(blank=True, max_length=42)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("kind__in", ["fiat", "erc20", "native"])), name="asset_kind_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("chain_id", None), ("contract", ""), ("kind", "fiat")),
                        models.Q(
                            ("chain_id__isnull", False), ("kind", "erc20"), models.Q(("contract", ""), _negated=True)
                        ),
                        models.Q(("chain_id__isnull", False), ("contract", ""), ("kind", "native")),
                        _connector="OR",
                    ),
                    name="asset_of_a_chain_names_it",
                ),
                models.UniqueConstraint(
                    condition=models.Q(("chain_id__isnull", False)),
                    fields=("chain_id", "contract"),
                    name="asset_of_a_chain_once",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Account",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "asset",
                models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="accounts",
                    to="billing.asset",
                ),
            ),
            (
                "kind",
                models.CharField(
                    choices=[
                        ("customer_available", "Customer Available"),
                        ("job_hold", "Job Hold"),
                        ("provider_pending", "Provider Pending"),
                        ("provider_available", "Provider Available"),
                        ("provider_reserve", "Provider Reserve"),
                        ("provider_stake", "Provider Stake"),
                        ("payout_clearing", "Payout Clearing"),
                        ("customer_promotion", "Customer Promotion"),
                        ("wallet_available", "Wallet Available"),
                        ("wallet_held", "Wallet Held"),
                        ("wallet_pending", "Wallet Pending"),
                        ("wallet_stake", "Wallet Stake"),
                        ("fee_revenue", "Fee Revenue"),
                        ("operator_cash", "Operator Cash"),
                        ("disputed", "Disputed"),
                        ("stripe_balance", "Stripe Balance"),
                        ("stripe_in_transit", "Stripe In Transit"),
                        ("chain_escrow", "Chain Escrow"),
                        ("chain_hot_wallet", "Chain Hot Wallet"),
                        ("stripe_fee_expense", "Stripe Fee Expense"),
                        ("gas_expense", "Gas Expense"),
                        ("chargeback_loss", "Chargeback Loss"),
                        ("promo_expense", "Promo Expense"),
                        ("rounding", "Rounding"),
                        ("slash_pool", "Slash Pool"),
                        ("insurance_pool", "Insurance Pool"),
                        ("liquidity", "Liquidity"),
                    ],
                    max_length=24,
                ),
            ),
            ("owner_id", models.UUIDField(blank=True, null=True)),
            ("job_id", models.UUIDField(blank=True, null=True)),
            ("debits_pending", billing.fields.SumField(default=0, editable=False)),
            ("debits_posted", billing.fields.SumField(default=0, editable=False)),
            ("credits_pending", billing.fields.SumField(default=0, editable=False)),
            ("credits_posted", billing.fields.SumField(default=0, editable=False)),
            ("is_nonnegative", models.BooleanField()),
            ("is_frozen", models.BooleanField(default=False)),
            ("is_summed", models.BooleanField(default=True)),
            ("rolled_seq", models.PositiveBigIntegerField(default=0, editable=False)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    fields=("owner_id", "kind", "job_id", "asset"), name="account_once", nulls_distinct=False
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "kind__in",
                            [
                                "customer_available",
                                "job_hold",
                                "provider_pending",
                                "provider_available",
                                "provider_reserve",
                                "provider_stake",
                                "payout_clearing",
                                "customer_promotion",
                                "wallet_available",
                                "wallet_held",
                                "wallet_pending",
                                "wallet_stake",
                                "fee_revenue",
                                "operator_cash",
                                "disputed",
                                "stripe_balance",
                                "stripe_in_transit",
                                "chain_escrow",
                                "chain_hot_wallet",
                                "stripe_fee_expense",
                                "gas_expense",
                                "chargeback_loss",
                                "promo_expense",
                                "rounding",
                                "slash_pool",
                                "insurance_pool",
                                "liquidity",
                            ],
                        )
                    ),
                    name="account_kind_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("credits_pending__gte", 0),
                        ("credits_posted__gte", 0),
                        ("debits_pending__gte", 0),
                        ("debits_posted__gte", 0),
                    ),
                    name="account_sums_nonnegative",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("is_nonnegative", False),
                        (
                            "credits_posted__gte",
                            django.db.models.expressions.CombinedExpression(
                                models.F("debits_posted"), "+", models.F("debits_pending")
                            ),
                        ),
                        _connector="OR",
                    ),
                    name="account_not_overdrawn",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("is_nonnegative", False),
                        (
                            "credits_posted__lte",
                            django.db.models.expressions.CombinedExpression(
                                models.F("debits_posted"),
                                "+",
                                models.Value(
                                    115792089237316195423570985008687907853269984665640564039457584007913129639935
                                ),
                            ),
                        ),
                        _connector="OR",
                    ),
                    name="account_balance_fits",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("owner_id__isnull", False),
                        models.Q(
                            (
                                "kind__in",
                                [
                                    "customer_available",
                                    "customer_promotion",
                                    "disputed",
                                    "job_hold",
                                    "payout_clearing",
                                    "provider_available",
                                    "provider_pending",
                                    "provider_reserve",
                                    "provider_stake",
                                    "wallet_available",
                                    "wallet_held",
                                    "wallet_pending",
                                    "wallet_stake",
                                ],
                            ),
                            _negated=True,
                        ),
                        _connector="OR",
                    ),
                    name="account_has_its_owner",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("is_nonnegative", True),
                        models.Q(
                            (
                                "kind__in",
                                [
                                    "customer_available",
                                    "customer_promotion",
                                    "disputed",
                                    "job_hold",
                                    "payout_clearing",
                                    "provider_available",
                                    "provider_pending",
                                    "provider_reserve",
                                    "provider_stake",
                                    "wallet_available",
                                    "wallet_held",
                                    "wallet_pending",
                                    "wallet_stake",
                                ],
                            ),
                            _negated=True,
                        ),
                        _connector="OR",
                    ),
                    name="account_of_others_money_nonnegative",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("job_id__isnull", False), ("kind__in", ["job_hold", "wallet_held"])),
                        models.Q(models.Q(("kind__in", ["job_hold", "wallet_held"]), _negated=True), ("job_id", None)),
                        _connector="OR",
                    ),
                    name="account_of_a_job_is_its_hold",
                ),
                models.CheckConstraint(
                    condition=models.Q(("is_summed", True), ("is_nonnegative", False), _connector="OR"),
                    name="account_without_sum_has_no_floor",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Transfer",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("group_id", models.UUIDField()),
            (
                "asset",
                models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="billing.asset",
                ),
            ),
            (
                "debit",
                models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="debits",
                    to="billing.account",
                ),
            ),
            (
                "credit",
                models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="credits",
                    to="billing.account",
                ),
            ),
            ("amount", billing.fields.AmountField()),
            (
                "mode",
                models.CharField(
                    choices=[("single", "Single"), ("pending", "Pending"), ("post", "Post"), ("void", "Void")],
                    default="single",
                    max_length=8,
                ),
            ),
            (
                "pending",
                models.ForeignKey(
                    blank=True,
                    db_index=False,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="resolutions",
                    to="billing.transfer",
                ),
            ),
            (
                "code",
                models.CharField(
                    choices=[
                        ("deposit", "Deposit"),
                        ("deposit_cost", "Deposit Cost"),
                        ("deposit_refund", "Deposit Refund"),
                        ("hold", "Hold"),
                        ("hold_extension", "Hold Extension"),
                        ("hold_release", "Hold Release"),
                        ("provider_pay", "Provider Pay"),
                        ("platform_fee", "Platform Fee"),
                        ("hold_rest", "Hold Rest"),
                        ("challenge_passed", "Challenge Passed"),
                        ("reserve_kept", "Reserve Kept"),
                        ("reserve_released", "Reserve Released"),
                        ("payout", "Payout"),
                        ("payout_cost", "Payout Cost"),
                        ("payout_returned", "Payout Returned"),
                        ("rail_move", "Rail Move"),
                        ("gas", "Gas"),
                        ("chargeback", "Chargeback"),
                        ("chargeback_won", "Chargeback Won"),
                        ("chargeback_recovery", "Chargeback Recovery"),
                        ("dispute_frozen", "Dispute Frozen"),
                        ("dispute_to_provider", "Dispute To Provider"),
                        ("dispute_to_customer", "Dispute To Customer"),
                        ("fault_refund", "Fault Refund"),
                        ("stake", "Stake"),
                        ("unstake", "Unstake"),
                        ("slash", "Slash"),
                        ("compensation", "Compensation"),
                        ("promotion", "Promotion"),
                        ("promotion_expired", "Promotion Expired"),
                        ("wallet_deposit", "Wallet Deposit"),
                        ("wallet_withdrawal", "Wallet Withdrawal"),
                        ("wallet_hold", "Wallet Hold"),
                        ("wallet_settled", "Wallet Settled"),
                        ("wallet_released", "Wallet Released"),
                        ("wallet_refund", "Wallet Refund"),
                        ("usage_pay", "Usage Pay"),
                        ("storage", "Storage"),
                        ("exchange", "Exchange"),
                        ("correction", "Correction"),
                    ],
                    max_length=24,
                ),
            ),
            ("job_id", models.UUIDField(blank=True, null=True)),
            ("external_ref", models.CharField(blank=True, max_length=200)),
            ("effective_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            (
                "seq",
                models.BigIntegerField(
                    db_default=models.Func(models.Value("billing_transfer_seq"), function="nextval"),
                    editable=False,
                    unique=True,
                ),
            ),
            ("prev_hash", models.CharField(blank=True, editable=False, max_length=64, null=True)),
            ("hash", models.CharField(blank=True, editable=False, max_length=64, null=True)),
        ],
        options={
            "ordering": ["-seq"],
            "indexes": [
                models.Index(fields=["debit", "seq"], name="transfer_debits"),
                models.Index(fields=["credit", "seq"], name="transfer_credits"),
                models.Index(condition=models.Q(("job_id__isnull", False)), fields=["job_id"], name="transfer_of_job"),
                models.Index(
                    condition=models.Q(("external_ref", ""), _negated=True),
                    fields=["external_ref"],
                    name="transfer_by_reference",
                ),
            ],
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("pending__isnull", False)), fields=("pending",), name="pending_resolved_once"
                ),
                models.UniqueConstraint(
                    condition=models.Q(("code", "exchange")),
                    fields=("external_ref", "asset", "credit"),
                    name="quote_used_once",
                ),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="transfer_amount_positive"),
                models.CheckConstraint(
                    condition=models.Q(
                        ("amount__lte", 115792089237316195423570985008687907853269984665640564039457584007913129639935)
                    ),
                    name="transfer_amount_fits",
                ),
                models.CheckConstraint(
                    condition=models.Q(("debit", models.F("credit")), _negated=True),
                    name="transfer_between_two_accounts",
                ),
                models.CheckConstraint(
                    condition=models.Q(("mode__in", ["single", "pending", "post", "void"])), name="transfer_mode_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "code__in",
                            [
                                "deposit",
                                "deposit_cost",
                                "deposit_refund",
                                "hold",
                                "hold_extension",
                                "hold_release",
                                "provider_pay",
                                "platform_fee",
                                "hold_rest",
                                "challenge_passed",
                                "reserve_kept",
                                "reserve_released",
                                "payout",
                                "payout_cost",
                                "payout_returned",
                                "rail_move",
                                "gas",
                                "chargeback",
                                "chargeback_won",
                                "chargeback_recovery",
                                "dispute_frozen",
                                "dispute_to_provider",
                                "dispute_to_customer",
                                "fault_refund",
                                "stake",
                                "unstake",
                                "slash",
                                "compensation",
                                "promotion",
                                "promotion_expired",
                                "wallet_deposit",
                                "wallet_withdrawal",
                                "wallet_hold",
                                "wallet_settled",
                                "wallet_released",
                                "wallet_refund",
                                "usage_pay",
                                "storage",
                                "exchange",
                                "correction",
                            ],
                        )
                    ),
                    name="transfer_code_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("mode__in", ["post", "void"]), ("pending__isnull", False)),
                        models.Q(("mode__in", ["single", "pending"]), ("pending", None)),
                        _connector="OR",
                    ),
                    name="transfer_resolution_names_its_pending",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("hash", None), ("prev_hash", None)),
                        models.Q(("hash__isnull", False), ("prev_hash__isnull", False)),
                        _connector="OR",
                    ),
                    name="transfer_sealed_whole",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="DailyRoot",
        fields=[
            ("day", models.DateField(primary_key=True, serialize=False)),
            ("first_seq", models.PositiveBigIntegerField(unique=True)),
            ("last_seq", models.PositiveBigIntegerField(unique=True)),
            ("transfers", models.PositiveBigIntegerField()),
            ("root", models.CharField(max_length=64)),
            ("sealed_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("row_digest", models.CharField(default="", editable=False, max_length=64)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("last_seq__gte", models.F("first_seq"))), name="daily_root_range"
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="EscrowContract",
        fields=[
            (
                "asset",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT,
                    primary_key=True,
                    related_name="escrow",
                    serialize=False,
                    to="billing.asset",
                ),
            ),
            ("chain_id", models.PositiveBigIntegerField()),
            ("address", models.CharField(max_length=42)),
            ("deployed_block", models.PositiveBigIntegerField()),
            ("code_hash", models.CharField(max_length=66)),
            ("scanned_block", models.PositiveBigIntegerField()),
            ("fee_recipient", models.CharField(max_length=42)),
            ("registered_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("chain_id", "address"), name="escrow_contract_once")],
        },
    ),
    migrations.CreateModel(
        name="ChainBlock",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("chain_id", models.PositiveBigIntegerField()),
            ("number", models.PositiveBigIntegerField()),
            ("hash", models.CharField(max_length=66)),
            ("parent_hash", models.CharField(max_length=66)),
            (
                "state",
                models.CharField(
                    choices=[("seen", "Seen"), ("safe", "Safe"), ("final", "Final"), ("orphaned", "Orphaned")],
                    default="seen",
                    max_length=16,
                ),
            ),
            ("mined_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [models.Index(fields=["chain_id", "number"], name="chain_block_of_number")],
            "constraints": [
                models.UniqueConstraint(fields=("chain_id", "hash"), name="chain_block_once"),
                models.UniqueConstraint(
                    condition=models.Q(("state", "final")),
                    fields=("chain_id", "number"),
                    name="one_final_block_per_number",
                ),
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["seen", "safe", "final", "orphaned"])),
                    name="chain_block_state_known",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="ChainEvent",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "block",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="events", to="billing.chainblock"
                ),
            ),
            ("tx_hash", models.CharField(max_length=66)),
            ("log_index", models.PositiveIntegerField()),
            ("contract", models.CharField(max_length=42)),
            ("name", models.CharField(max_length=64)),
            ("arguments", models.JSONField(default=dict)),
            ("processed_at", models.DateTimeField(blank=True, null=True)),
            ("attempts", models.PositiveIntegerField(default=0)),
            ("last_error", models.TextField(blank=True)),
        ],
        options={
            "indexes": [
                models.Index(condition=models.Q(("processed_at", None)), fields=["block"], name="chain_event_waiting")
            ],
            "constraints": [models.UniqueConstraint(fields=("tx_hash", "log_index", "block"), name="chain_event_once")],
        },
    ),
    migrations.CreateModel(
        name="Signer",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("address", models.CharField(max_length=42)),
            ("chain_id", models.PositiveBigIntegerField()),
            ("next_nonce", models.PositiveBigIntegerField()),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("address", "chain_id"), name="signer_once")],
        },
    ),
    migrations.CreateModel(
        name="ChainTransaction",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("business_key", models.CharField(max_length=200, null=True, unique=True)),
            ("purpose", models.CharField(blank=True, max_length=32)),
            ("chain_id", models.PositiveBigIntegerField()),
            ("signer", models.CharField(max_length=42)),
            ("to", models.CharField(blank=True, max_length=42)),
            ("data", models.TextField(blank=True)),
            ("gas", models.PositiveBigIntegerField(default=0)),
            ("nonce", models.PositiveBigIntegerField(blank=True, null=True)),
            ("raw", models.TextField(blank=True)),
            ("hash", models.CharField(blank=True, max_length=66)),
            ("fees", models.JSONField(default=dict)),
            (
                "replaces",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="replaced_by",
                    to="billing.chaintransaction",
                ),
            ),
            (
                "state",
                models.CharField(
                    choices=[
                        ("planned", "Planned"),
                        ("nonced", "Nonced"),
                        ("signed", "Signed"),
                        ("broadcast", "Broadcast"),
                        ("mined", "Mined"),
                        ("final", "Final"),
                        ("reverted", "Reverted"),
                        ("reorged", "Reorged"),
                        ("replaced", "Replaced"),
                        ("refused", "Refused"),
                    ],
                    default="planned",
                    max_length=16,
                ),
            ),
            ("attempts", models.PositiveIntegerField(default=0)),
            ("next_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("sent_at", models.DateTimeField(blank=True, null=True)),
            ("block_number", models.PositiveBigIntegerField(blank=True, null=True)),
            ("block_hash", models.CharField(blank=True, max_length=66)),
            ("gas_cost", billing.fields.AmountField(default=0)),
            ("last_error", models.TextField(blank=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("state__in", ["final", "reverted", "replaced", "refused"]), _negated=True),
                    fields=["chain_id", "signer", "created_at"],
                    name="chain_transaction_live",
                )
            ],
            "constraints": [
                models.UniqueConstraint(fields=("signer", "chain_id", "nonce", "hash"), name="chain_transaction_once"),
                models.UniqueConstraint(
                    condition=models.Q(("state__in", ["final", "reverted"])),
                    fields=("signer", "chain_id", "nonce"),
                    name="one_final_per_nonce",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "state__in",
                            [
                                "planned",
                                "nonced",
                                "signed",
                                "broadcast",
                                "mined",
                                "final",
                                "reverted",
                                "reorged",
                                "replaced",
                                "refused",
                            ],
                        )
                    ),
                    name="chain_transaction_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("replaces", None), models.Q(("replaces", models.F("id")), _negated=True), _connector="OR"
                    ),
                    name="chain_transaction_replaces_another",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("nonce", None), ("state__in", ["planned", "refused"])),
                        models.Q(
                            models.Q(("state__in", ["planned", "refused"]), _negated=True), ("nonce__isnull", False)
                        ),
                        _connector="OR",
                    ),
                    name="chain_transaction_sent_has_nonce",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("state__in", ["planned", "refused", "nonced"]),
                        models.Q(models.Q(("raw", ""), _negated=True), models.Q(("hash", ""), _negated=True)),
                        _connector="OR",
                    ),
                    name="chain_transaction_signed_has_bytes",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Reconciliation",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("started_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("ended_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("reason", models.CharField(max_length=32)),
            ("unexplained", models.PositiveIntegerField(default=0)),
            ("unanswered", models.JSONField(default=dict)),
        ],
        options={
            "indexes": [models.Index(fields=["-started_at"], name="reconciliation_newest")],
        },
    ),
    migrations.CreateModel(
        name="Position",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "reconciliation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="positions", to="billing.reconciliation"
                ),
            ),
            ("rail", models.CharField(max_length=16)),
            (
                "kind",
                models.CharField(
                    choices=[
                        ("customer_available", "Customer Available"),
                        ("job_hold", "Job Hold"),
                        ("provider_pending", "Provider Pending"),
                        ("provider_available", "Provider Available"),
                        ("provider_reserve", "Provider Reserve"),
                        ("provider_stake", "Provider Stake"),
                        ("payout_clearing", "Payout Clearing"),
                        ("customer_promotion", "Customer Promotion"),
                        ("wallet_available", "Wallet Available"),
                        ("wallet_held", "Wallet Held"),
                        ("wallet_pending", "Wallet Pending"),
                        ("wallet_stake", "Wallet Stake"),
                        ("fee_revenue", "Fee Revenue"),
                        ("operator_cash", "Operator Cash"),
                        ("disputed", "Disputed"),
                        ("stripe_balance", "Stripe Balance"),
                        ("stripe_in_transit", "Stripe In Transit"),
                        ("chain_escrow", "Chain Escrow"),
                        ("chain_hot_wallet", "Chain Hot Wallet"),
                        ("stripe_fee_expense", "Stripe Fee Expense"),
                        ("gas_expense", "Gas Expense"),
                        ("chargeback_loss", "Chargeback Loss"),
                        ("promo_expense", "Promo Expense"),
                        ("rounding", "Rounding"),
                        ("slash_pool", "Slash Pool"),
                        ("insurance_pool", "Insurance Pool"),
                        ("liquidity", "Liquidity"),
                    ],
                    max_length=24,
                ),
            ),
            (
                "asset",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"),
            ),
            ("ledger", billing.fields.AmountField()),
            ("outside", billing.fields.AmountField()),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("reconciliation", "kind", "asset"), name="position_once")],
        },
    ),
    migrations.CreateModel(
        name="Difference",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "reconciliation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="differences", to="billing.reconciliation"
                ),
            ),
            ("rail", models.CharField(max_length=16)),
            (
                "kind",
                models.CharField(
                    choices=[
                        ("missing_inside", "Missing Inside"),
                        ("missing_outside", "Missing Outside"),
                        ("amount", "Amount"),
                        ("position", "Position"),
                    ],
                    max_length=16,
                ),
            ),
            (
                "account_kind",
                models.CharField(
                    choices=[
                        ("customer_available", "Customer Available"),
                        ("job_hold", "Job Hold"),
                        ("provider_pending", "Provider Pending"),
                        ("provider_available", "Provider Available"),
                        ("provider_reserve", "Provider Reserve"),
                        ("provider_stake", "Provider Stake"),
                        ("payout_clearing", "Payout Clearing"),
                        ("customer_promotion", "Customer Promotion"),
                        ("wallet_available", "Wallet Available"),
                        ("wallet_held", "Wallet Held"),
                        ("wallet_pending", "Wallet Pending"),
                        ("wallet_stake", "Wallet Stake"),
                        ("fee_revenue", "Fee Revenue"),
                        ("operator_cash", "Operator Cash"),
                        ("disputed", "Disputed"),
                        ("stripe_balance", "Stripe Balance"),
                        ("stripe_in_transit", "Stripe In Transit"),
                        ("chain_escrow", "Chain Escrow"),
                        ("chain_hot_wallet", "Chain Hot Wallet"),
                        ("stripe_fee_expense", "Stripe Fee Expense"),
                        ("gas_expense", "Gas Expense"),
                        ("chargeback_loss", "Chargeback Loss"),
                        ("promo_expense", "Promo Expense"),
                        ("rounding", "Rounding"),
                        ("slash_pool", "Slash Pool"),
                        ("insurance_pool", "Insurance Pool"),
                        ("liquidity", "Liquidity"),
                    ],
                    max_length=24,
                ),
            ),
            (
                "asset",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"),
            ),
            ("ref", models.CharField(blank=True, max_length=200)),
            ("ledger", billing.fields.AmountField(default=0)),
            ("outside", billing.fields.AmountField(default=0)),
            ("explanation", models.CharField(blank=True, max_length=200)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("kind__in", ["missing_inside", "missing_outside", "amount", "position"])),
                    name="difference_kind_known",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="PayoutBreaker",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("state", models.CharField(choices=[("open", "Open"), ("closed", "Closed")], default="open", max_length=8)),
            ("cause", models.CharField(max_length=200)),
            (
                "reconciliation",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="breakers",
                    to="billing.reconciliation",
                ),
            ),
            ("opened_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
            ("closed_by", models.CharField(blank=True, max_length=120)),
            ("note", models.TextField(blank=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("state", "open")), fields=("state",), name="one_open_breaker"
                ),
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["open", "closed"])), name="breaker_state_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("closed_at", None), ("state", "open")),
                        models.Q(
                            ("closed_at__isnull", False), ("state", "closed"), models.Q(("note", ""), _negated=True)
                        ),
                        _connector="OR",
                    ),
                    name="breaker_closed_with_a_note",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="LedgerCorrection",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "state",
                models.CharField(
                    choices=[("proposed", "Proposed"), ("approved", "Approved"), ("rejected", "Rejected")],
                    default="proposed",
                    max_length=8,
                ),
            ),
            ("rail", models.CharField(max_length=16)),
            (
                "mirror",
                models.CharField(
                    choices=[
                        ("customer_available", "Customer Available"),
                        ("job_hold", "Job Hold"),
                        ("provider_pending", "Provider Pending"),
                        ("provider_available", "Provider Available"),
                        ("provider_reserve", "Provider Reserve"),
                        ("provider_stake", "Provider Stake"),
                        ("payout_clearing", "Payout Clearing"),
                        ("customer_promotion", "Customer Promotion"),
                        ("wallet_available", "Wallet Available"),
                        ("wallet_held", "Wallet Held"),
                        ("wallet_pending", "Wallet Pending"),
                        ("wallet_stake", "Wallet Stake"),
                        ("fee_revenue", "Fee Revenue"),
                        ("operator_cash", "Operator Cash"),
                        ("disputed", "Disputed"),
                        ("stripe_balance", "Stripe Balance"),
                        ("stripe_in_transit", "Stripe In Transit"),
                        ("chain_escrow", "Chain Escrow"),
                        ("chain_hot_wallet", "Chain Hot Wallet"),
                        ("stripe_fee_expense", "Stripe Fee Expense"),
                        ("gas_expense", "Gas Expense"),
                        ("chargeback_loss", "Chargeback Loss"),
                        ("promo_expense", "Promo Expense"),
                        ("rounding", "Rounding"),
                        ("slash_pool", "Slash Pool"),
                        ("insurance_pool", "Insurance Pool"),
                        ("liquidity", "Liquidity"),
                    ],
                    max_length=24,
                ),
            ),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("ref", models.CharField(blank=True, max_length=200)),
            ("amount", billing.fields.AmountField()),
            (
                "against",
                models.CharField(
                    choices=[
                        ("customer_available", "Customer Available"),
                        ("job_hold", "Job Hold"),
                        ("provider_pending", "Provider Pending"),
                        ("provider_available", "Provider Available"),
                        ("provider_reserve", "Provider Reserve"),
                        ("provider_stake", "Provider Stake"),
                        ("payout_clearing", "Payout Clearing"),
                        ("customer_promotion", "Customer Promotion"),
                        ("wallet_available", "Wallet Available"),
                        ("wallet_held", "Wallet Held"),
                        ("wallet_pending", "Wallet Pending"),
                        ("wallet_stake", "Wallet Stake"),
                        ("fee_revenue", "Fee Revenue"),
                        ("operator_cash", "Operator Cash"),
                        ("disputed", "Disputed"),
                        ("stripe_balance", "Stripe Balance"),
                        ("stripe_in_transit", "Stripe In Transit"),
                        ("chain_escrow", "Chain Escrow"),
                        ("chain_hot_wallet", "Chain Hot Wallet"),
                        ("stripe_fee_expense", "Stripe Fee Expense"),
                        ("gas_expense", "Gas Expense"),
                        ("chargeback_loss", "Chargeback Loss"),
                        ("promo_expense", "Promo Expense"),
                        ("rounding", "Rounding"),
                        ("slash_pool", "Slash Pool"),
                        ("insurance_pool", "Insurance Pool"),
                        ("liquidity", "Liquidity"),
                    ],
                    max_length=24,
                ),
            ),
            ("owner_id", models.UUIDField(blank=True, null=True)),
            ("why", models.TextField()),
            (
                "report",
                models.ForeignKey(
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="billing.reconciliation",
                ),
            ),
            ("proposer_id", models.UUIDField()),
            ("proposed_by", models.CharField(max_length=254)),
            ("proposed_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("decider_id", models.UUIDField(blank=True, null=True)),
            ("decided_by", models.CharField(blank=True, max_length=254)),
            ("decided_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["proposed", "approved", "rejected"])),
                    name="correction_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(models.Q(("amount", 0), _negated=True), models.Q(("why", ""), _negated=True)),
                    name="correction_says_how_much_and_why",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("decided_at", None), ("decider_id", None), ("state", "proposed")),
                        models.Q(
                            models.Q(("state", "proposed"), _negated=True),
                            ("decided_at__isnull", False),
                            ("decider_id__isnull", False),
                        ),
                        _connector="OR",
                    ),
                    name="correction_decided_by_somebody",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("state", "approved"), _negated=True),
                        models.Q(("decider_id", models.F("proposer_id")), _negated=True),
                        _connector="OR",
                    ),
                    name="correction_approved_by_another",
                ),
                models.UniqueConstraint(
                    condition=models.Q(("state", "proposed")),
                    fields=("rail", "mirror", "asset", "ref"),
                    name="one_open_correction_of_a_difference",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Deposit",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("owner_id", models.UUIDField()),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("amount", billing.fields.AmountField()),
            ("rail", models.CharField(default="operator", max_length=16)),
            ("reference", models.CharField(max_length=200)),
            ("actor", models.CharField(max_length=120)),
            (
                "transfer",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="deposit", to="billing.transfer"
                ),
            ),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("row_digest", models.CharField(default="", editable=False, max_length=64)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("rail", "reference"), name="deposit_once_per_reference"),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="deposit_amount_positive"),
                models.CheckConstraint(
                    condition=models.Q(("reference", ""), _negated=True), name="deposit_has_a_reference"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Hold",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("owner_id", models.UUIDField()),
            ("job_id", models.UUIDField(db_index=True)),
            (
                "asset",
                models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="billing.asset",
                ),
            ),
            ("amount", billing.fields.AmountField()),
            (
                "state",
                models.CharField(
                    choices=[
                        ("open", "Open"),
                        ("captured", "Captured"),
                        ("released", "Released"),
                        ("expired", "Expired"),
                    ],
                    default="open",
                    max_length=16,
                ),
            ),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
            ("row_digest", models.CharField(default="", editable=False, max_length=64)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("state", "open")), fields=("job_id",), name="one_open_hold_per_job"
                ),
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["open", "captured", "released", "expired"])),
                    name="hold_state_known",
                ),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="hold_amount_positive"),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("closed_at", None), ("state", "open")),
                        models.Q(models.Q(("state", "open"), _negated=True), ("closed_at__isnull", False)),
                        _connector="OR",
                    ),
                    name="hold_closed_has_its_time",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Settlement",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("job_id", models.UUIDField(db_index=True)),
            ("is_final", models.BooleanField(db_default=True, default=True)),
            (
                "hold",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="settlement", to="billing.hold"
                ),
            ),
            ("owner_id", models.UUIDField()),
            (
                "asset",
                models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="billing.asset",
                ),
            ),
            ("fee_bps", models.PositiveIntegerField()),
            ("held", billing.fields.AmountField()),
            ("charged", billing.fields.AmountField()),
            ("fee", billing.fields.AmountField()),
            ("paid", billing.fields.AmountField()),
            ("refunded", billing.fields.AmountField()),
            ("challenge_until", models.DateTimeField()),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("row_digest", models.CharField(default="", editable=False, max_length=64)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("is_final", True)), fields=("job_id",), name="one_final_settlement_per_job"
                ),
                models.CheckConstraint(
                    condition=models.Q(("charged__gte", 0), ("fee__gte", 0), ("paid__gte", 0), ("refunded__gte", 0)),
                    name="settlement_amounts_nonnegative",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "held",
                            django.db.models.expressions.CombinedExpression(
                                models.F("charged"), "+", models.F("refunded")
                            ),
                        )
                    ),
                    name="settlement_splits_the_hold",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "charged",
                            django.db.models.expressions.CombinedExpression(models.F("fee"), "+", models.F("paid")),
                        )
                    ),
                    name="settlement_splits_the_charge",
                ),
                models.CheckConstraint(condition=models.Q(("fee_bps__lte", 10000)), name="settlement_fee_bps_range"),
            ],
        },
    ),
    migrations.CreateModel(
        name="SettlementShare",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "settlement",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="shares", to="billing.settlement"
                ),
            ),
            ("lease_id", models.UUIDField(db_index=True)),
            ("provider_id", models.UUIDField()),
            ("charged", billing.fields.AmountField()),
            ("fee", billing.fields.AmountField()),
            ("paid", billing.fields.AmountField()),
            ("challenge_until", models.DateTimeField()),
            ("released_at", models.DateTimeField(blank=True, null=True)),
            ("is_disputed", models.BooleanField(db_default=False, default=False)),
            ("row_digest", models.CharField(default="", editable=False, max_length=64)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("released_at", None)),
                    fields=["challenge_until"],
                    name="share_waiting_for_release",
                ),
                models.Index(fields=["provider_id", "challenge_until"], name="share_of_provider"),
            ],
            "constraints": [
                models.UniqueConstraint(fields=("lease_id", "settlement"), name="one_share_per_lease_and_settlement"),
                models.CheckConstraint(
                    condition=models.Q(("charged__gte", 0), ("fee__gte", 0), ("paid__gte", 0)),
                    name="share_amounts_nonnegative",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "charged",
                            django.db.models.expressions.CombinedExpression(models.F("fee"), "+", models.F("paid")),
                        )
                    ),
                    name="share_splits_its_charge",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="EndRecord",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("lease_id", models.UUIDField(unique=True)),
            ("job_id", models.UUIDField(db_index=True)),
            ("attempt", models.PositiveSmallIntegerField()),
            ("node_id", models.UUIDField()),
            ("customer_id", models.UUIDField()),
            ("provider_id", models.UUIDField()),
            ("reason", models.CharField(max_length=64)),
            ("fault", models.CharField(max_length=16)),
            ("message", models.TextField(blank=True)),
            ("reported_reason", models.CharField(blank=True, max_length=64)),
            ("exit_code", models.IntegerField(blank=True, null=True)),
            ("claimed_ms", models.PositiveBigIntegerField()),
            ("observed_ms", models.PositiveBigIntegerField()),
            ("checkpointed_ms", models.PositiveBigIntegerField()),
            ("billable_ms", models.PositiveBigIntegerField()),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("rate", billing.fields.AmountField()),
            ("claimed", billing.fields.AmountField()),
            ("charged", billing.fields.AmountField()),
            ("receipt_seq", models.PositiveBigIntegerField(default=0)),
            ("receipt_digest", models.CharField(blank=True, max_length=66)),
            ("last_seen_at", models.DateTimeField(blank=True, null=True)),
            ("ended_at", models.DateTimeField()),
        ],
        options={
            "indexes": [models.Index(fields=["reason"], name="end_record_reason")],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("charged__gte", 0), ("claimed__gte", 0), ("rate__gte", 0)), name="end_amounts"
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="Dispute",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "share",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="dispute", to="billing.settlementshare"
                ),
            ),
            ("job_id", models.UUIDField(db_index=True)),
            ("lease_id", models.UUIDField(db_index=True)),
            ("customer_id", models.UUIDField(db_index=True)),
            ("provider_id", models.UUIDField(db_index=True)),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("paid", billing.fields.AmountField()),
            ("fee", billing.fields.AmountField()),
            (
                "state",
                models.CharField(
                    choices=[
                        ("opened", "Opened"),
                        ("answered", "Answered"),
                        ("decided", "Decided"),
                        ("withdrawn", "Withdrawn"),
                    ],
                    default="opened",
                    max_length=16,
                ),
            ),
            ("text", models.TextField()),
            ("attachments", models.JSONField(blank=True, default=list)),
            ("opened_by", models.CharField(max_length=120)),
            ("opened_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("answer_until", models.DateTimeField()),
            ("answer", models.TextField(blank=True)),
            ("answer_attachments", models.JSONField(blank=True, default=list)),
            ("answered_by", models.CharField(blank=True, max_length=120)),
            ("answered_at", models.DateTimeField(blank=True, null=True)),
            ("decide_until", models.DateTimeField(blank=True, null=True)),
            ("to_customer", billing.fields.AmountField(blank=True, null=True)),
            ("to_provider", billing.fields.AmountField(blank=True, null=True)),
            ("to_platform", billing.fields.AmountField(blank=True, null=True)),
            ("decision", models.TextField(blank=True)),
            ("decided_by", models.CharField(blank=True, max_length=120)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["opened", "answered", "decided", "withdrawn"])),
                    name="dispute_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(("fee__gte", 0), ("paid__gte", 0)), name="dispute_amounts_nonnegative"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(
                            ("state", "decided"),
                            ("to_customer__gte", 0),
                            ("to_platform__gte", 0),
                            ("to_provider__gte", 0),
                            (
                                "to_customer",
                                django.db.models.expressions.CombinedExpression(
                                    django.db.models.expressions.CombinedExpression(
                                        django.db.models.expressions.CombinedExpression(
                                            models.F("paid"), "+", models.F("fee")
                                        ),
                                        "-",
                                        models.F("to_provider"),
                                    ),
                                    "-",
                                    models.F("to_platform"),
                                ),
                            ),
                        ),
                        models.Q(
                            models.Q(("state", "decided"), _negated=True),
                            ("to_customer", None),
                            ("to_platform", None),
                            ("to_provider", None),
                        ),
                        _connector="OR",
                    ),
                    name="dispute_split_exactly",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("closed_at", None), ("state__in", ["opened", "answered"])),
                        models.Q(("closed_at__isnull", False), ("state__in", ["decided", "withdrawn"])),
                        _connector="OR",
                    ),
                    name="dispute_closed_has_its_time",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Offence",
        fields=[
            ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
            ("provider_id", models.UUIDField(db_index=True)),
            ("customer_id", models.UUIDField(blank=True, null=True)),
            ("job_id", models.UUIDField(blank=True, null=True)),
            ("lease_id", models.UUIDField(blank=True, null=True)),
            ("reason", models.CharField(max_length=64)),
            ("evidence", models.JSONField(blank=True, default=dict)),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("penalty", billing.fields.AmountField()),
            ("taken", billing.fields.AmountField()),
            ("compensated", billing.fields.AmountField()),
            ("group_id", models.UUIDField(blank=True, null=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("compensated__gte", 0),
                        ("penalty__gte", 0),
                        ("taken__gte", 0),
                        ("compensated__lte", models.F("taken")),
                        ("taken__lte", models.F("penalty")),
                    ),
                    name="offence_takes_at_most_its_penalty",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="OffenceTaking",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "offence",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="takings", to="billing.offence"
                ),
            ),
            (
                "share",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="takings", to="billing.settlementshare"
                ),
            ),
            ("amount", billing.fields.AmountField()),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("offence", "share"), name="offence_takes_once_from_a_share"),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="offence_taking_positive"),
            ],
        },
    ),
    migrations.CreateModel(
        name="PayoutEntry",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "contract",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="entries", to="billing.escrowcontract"
                ),
            ),
            ("payout_id", models.UUIDField(unique=True)),
            ("provider_id", models.UUIDField()),
            ("wallet", models.CharField(max_length=42)),
            ("amount", billing.fields.AmountField()),
            ("cumulative", billing.fields.AmountField()),
            ("claimed_at", models.DateTimeField(blank=True, null=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="payout_entry_positive"),
                models.UniqueConstraint(fields=("contract", "wallet", "cumulative"), name="payout_entry_cumulates"),
            ],
        },
    ),
    migrations.CreateModel(
        name="PayoutRoot",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "contract",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="roots", to="billing.escrowcontract"
                ),
            ),
            (
                "last_entry",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.payoutentry"
                ),
            ),
            ("root", models.CharField(max_length=66)),
            ("total", billing.fields.AmountField()),
            (
                "transaction",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="payout_root",
                    to="billing.chaintransaction",
                ),
            ),
            (
                "state",
                models.CharField(
                    choices=[
                        ("planned", "Planned"),
                        ("proposed", "Proposed"),
                        ("active", "Active"),
                        ("vetoed", "Vetoed"),
                        ("failed", "Failed"),
                    ],
                    default="planned",
                    max_length=16,
                ),
            ),
            ("active_at", models.DateTimeField(blank=True, null=True)),
            ("may_follow", models.BooleanField(default=False)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["planned", "proposed", "active", "vetoed", "failed"])),
                    name="payout_root_state_known",
                ),
                models.UniqueConstraint(
                    condition=models.Q(("state__in", ["planned", "proposed"])),
                    fields=("contract",),
                    name="one_root_under_way",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="EscrowHold",
        fields=[
            ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
            (
                "contract",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="holds", to="billing.escrowcontract"
                ),
            ),
            ("customer", models.CharField(max_length=42)),
            ("amount", billing.fields.AmountField()),
            ("settled", billing.fields.AmountField(default=0)),
            ("rate_ceiling_per_hour", billing.fields.AmountField()),
            ("parallel_leases", models.PositiveBigIntegerField(db_default=1, default=1)),
            ("providers_root", models.CharField(max_length=66)),
            ("providers", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
            ("deadline", models.PositiveBigIntegerField()),
            ("closes_at", models.DateTimeField(blank=True, null=True)),
            (
                "transaction",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="escrow_hold",
                    to="billing.chaintransaction",
                ),
            ),
            (
                "state",
                models.CharField(
                    choices=[("requested", "Requested"), ("open", "Open"), ("closed", "Closed"), ("failed", "Failed")],
                    default="requested",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=200)),
            ("end_asked_at", models.DateTimeField(blank=True, null=True)),
            (
                "closing",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="closed_hold",
                    to="billing.chaintransaction",
                ),
            ),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["requested", "open", "closed", "failed"])),
                    name="escrow_hold_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(("settled__lte", models.F("amount"))), name="escrow_hold_covers_leases"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="EscrowLease",
        fields=[
            ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
            (
                "hold",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="leases", to="billing.escrowhold"
                ),
            ),
            ("provider", models.CharField(max_length=42)),
            ("seq", models.PositiveBigIntegerField()),
            ("pending", billing.fields.AmountField(default=0)),
            ("paid", billing.fields.AmountField(default=0)),
            ("fee", billing.fields.AmountField(default=0)),
            ("refunded", billing.fields.AmountField(default=0)),
            ("release_at", models.DateTimeField()),
            ("is_challenged", models.BooleanField(default=False)),
        ],
    ),
    migrations.CreateModel(
        name="EscrowClaim",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "hold",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="claims", to="billing.escrowhold"
                ),
            ),
            ("lease_id", models.UUIDField()),
            ("provider", models.CharField(max_length=42)),
            ("seq", models.PositiveBigIntegerField()),
            ("amount", billing.fields.AmountField()),
            (
                "transaction",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="claim", to="billing.chaintransaction"
                ),
            ),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("lease_id", "seq"), name="escrow_claim_once")],
        },
    ),
    migrations.CreateModel(
        name="ReceiptKey",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "contract",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="receipt_keys",
                    to="billing.escrowcontract",
                ),
            ),
            ("provider", models.CharField(max_length=42)),
            ("receipt_key", models.CharField(max_length=42)),
            ("not_after", billing.fields.AmountField()),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("contract", "provider", "receipt_key"), name="receipt_key_once")
            ],
        },
    ),
    migrations.CreateModel(
        name="ContractTerms",
        fields=[
            (
                "contract",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT,
                    primary_key=True,
                    related_name="periods",
                    serialize=False,
                    to="billing.escrowcontract",
                ),
            ),
            ("challenge_seconds", models.PositiveBigIntegerField()),
            ("grace_seconds", models.PositiveBigIntegerField()),
            ("dispute_seconds", models.PositiveBigIntegerField()),
            ("close_seconds", models.PositiveBigIntegerField(db_default=0, default=0)),
            ("fee_bps", models.PositiveIntegerField()),
        ],
    ),
    migrations.CreateModel(
        name="StripeEvent",
        fields=[
            ("event_id", models.CharField(max_length=255, primary_key=True, serialize=False)),
            ("type", models.CharField(max_length=120)),
            ("account", models.CharField(blank=True, max_length=255)),
            ("created", models.DateTimeField()),
            ("payload", models.JSONField()),
            ("received_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("processed_at", models.DateTimeField(blank=True, null=True)),
            ("error", models.TextField(blank=True)),
            (
                "outcome",
                models.CharField(
                    choices=[
                        ("waiting", "Waiting"),
                        ("handled", "Handled"),
                        ("ignored", "Ignored"),
                        ("given_up", "Given Up"),
                    ],
                    default="waiting",
                    max_length=16,
                ),
            ),
            ("attempts", models.PositiveIntegerField(default=0)),
            ("next_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("processed_at", None)), fields=["received_at"], name="stripe_event_unprocessed"
                )
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("outcome", "waiting"), ("processed_at", None)),
                        models.Q(("outcome__in", ["handled", "ignored", "given_up"]), ("processed_at__isnull", False)),
                        _connector="OR",
                    ),
                    name="stripe_event_processed_has_its_outcome",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="StripeCursor",
        fields=[
            ("name", models.CharField(max_length=32, primary_key=True, serialize=False)),
            ("seen_until", models.DateTimeField()),
        ],
    ),
    migrations.CreateModel(
        name="StripeBooking",
        fields=[
            ("ref", models.CharField(max_length=120, primary_key=True, serialize=False)),
            ("group_id", models.UUIDField()),
            ("booked_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
    ),
    migrations.CreateModel(
        name="StripeCustomer",
        fields=[
            ("owner_id", models.UUIDField(primary_key=True, serialize=False)),
            ("stripe_id", models.CharField(blank=True, max_length=120, null=True, unique=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
    ),
    migrations.CreateModel(
        name="SavedCard",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("owner_id", models.UUIDField(db_index=True)),
            ("stripe_id", models.CharField(max_length=120, unique=True)),
            ("brand", models.CharField(max_length=32)),
            ("last4", models.CharField(max_length=4)),
            ("exp_month", models.PositiveSmallIntegerField()),
            ("exp_year", models.PositiveSmallIntegerField()),
            ("is_default", models.BooleanField(default=False)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("removed_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("is_default", True), ("removed_at", None)),
                    fields=("owner_id",),
                    name="one_default_card_per_owner",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="ConnectAccount",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("owner_id", models.UUIDField(unique=True)),
            ("stripe_id", models.CharField(blank=True, max_length=120, null=True, unique=True)),
            ("country", models.CharField(max_length=2)),
            ("email", models.EmailField(blank=True, max_length=254)),
            ("is_submitted", models.BooleanField(default=False)),
            ("is_payable", models.BooleanField(default=False)),
            ("requirements", models.JSONField(blank=True, default=list)),
            ("disabled_reason", models.CharField(blank=True, max_length=120)),
            ("checked_at", models.DateTimeField(blank=True, null=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
    ),
    migrations.CreateModel(
        name="BillingDetails",
        fields=[
            ("owner_id", models.UUIDField(primary_key=True, serialize=False)),
            ("name", models.CharField(blank=True, max_length=200)),
            ("address", models.TextField(blank=True)),
            ("country", models.CharField(blank=True, max_length=2)),
            ("tax_id", models.CharField(blank=True, max_length=40)),
            ("tax_bps", models.PositiveIntegerField(default=0)),
            ("tax_note", models.CharField(blank=True, max_length=200)),
        ],
        options={
            "verbose_name_plural": "billing details",
            "constraints": [models.CheckConstraint(condition=models.Q(("tax_bps__lte", 10000)), name="tax_bps_range")],
        },
    ),
    migrations.CreateModel(
        name="InvoiceCounter",
        fields=[
            ("year", models.PositiveIntegerField(primary_key=True, serialize=False)),
            ("last", models.PositiveIntegerField(default=0)),
        ],
    ),
    migrations.CreateModel(
        name="Invoice",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("year", models.PositiveIntegerField()),
            ("number", models.PositiveIntegerField()),
            (
                "kind",
                models.CharField(
                    choices=[("invoice", "Invoice"), ("credit_note", "Credit Note")], default="invoice", max_length=16
                ),
            ),
            (
                "credits",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="credit_notes",
                    to="billing.invoice",
                ),
            ),
            ("owner_id", models.UUIDField(db_index=True)),
            ("month", models.DateField()),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("buyer", models.JSONField(default=dict)),
            ("seller", models.JSONField(default=dict)),
            ("lines", models.JSONField(default=list)),
            ("charged", billing.fields.AmountField()),
            ("refunded", billing.fields.AmountField()),
            ("total", billing.fields.AmountField()),
            ("tax_bps", models.PositiveIntegerField()),
            ("tax", billing.fields.AmountField()),
            ("topped_up", billing.fields.AmountField(default=0)),
            ("given", billing.fields.AmountField(default=0)),
            ("issued_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("year", "number"), name="invoice_number_once"),
                models.UniqueConstraint(
                    condition=models.Q(("kind", "invoice")),
                    fields=("owner_id", "month", "asset"),
                    name="one_invoice_a_month",
                ),
                models.UniqueConstraint(
                    condition=models.Q(("kind", "credit_note")),
                    fields=("credits", "month"),
                    name="one_credit_note_a_month",
                ),
                models.CheckConstraint(
                    condition=models.Q(("kind__in", ["invoice", "credit_note"])), name="invoice_kind_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("credits", None), ("kind", "invoice")),
                        models.Q(("credits__isnull", False), ("kind", "credit_note")),
                        _connector="OR",
                    ),
                    name="credit_note_names_its_invoice",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "total",
                            django.db.models.expressions.CombinedExpression(
                                models.F("charged"), "-", models.F("refunded")
                            ),
                        )
                    ),
                    name="invoice_adds_up",
                ),
                models.CheckConstraint(condition=models.Q(("number__gte", 1)), name="invoice_numbers_from_one"),
            ],
        },
    ),
    migrations.CreateModel(
        name="SpendLimit",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("owner_id", models.UUIDField()),
            ("member_id", models.UUIDField(blank=True, null=True)),
            ("period", models.CharField(choices=[("month", "Month"), ("job", "Job")], default="month", max_length=8)),
            ("amount", billing.fields.AmountField()),
            ("set_by", models.CharField(max_length=120)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    fields=("owner_id", "member_id", "period"), name="one_spend_limit_each", nulls_distinct=False
                ),
                models.CheckConstraint(
                    condition=models.Q(("period__in", ["month", "job"])), name="spend_limit_period_known"
                ),
                models.CheckConstraint(condition=models.Q(("amount__gte", 0)), name="spend_limit_nonnegative"),
            ],
        },
    ),
    migrations.CreateModel(
        name="Commitment",
        fields=[
            ("job_id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
            ("owner_id", models.UUIDField()),
            ("member_id", models.UUIDField(blank=True, null=True)),
            ("amount", billing.fields.AmountField()),
            ("charged", billing.fields.AmountField(blank=True, null=True)),
            ("opened_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "indexes": [models.Index(fields=["owner_id", "closed_at"], name="commitment_of_owner")],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("charged", None), ("closed_at", None)),
                        models.Q(("charged__gte", 0), ("closed_at__isnull", False)),
                        _connector="OR",
                    ),
                    name="commitment_closed_with_its_charge",
                ),
                models.CheckConstraint(condition=models.Q(("amount__gte", 0)), name="commitment_nonnegative"),
            ],
        },
    ),
    migrations.CreateModel(
        name="PayoutSettings",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("provider_id", models.UUIDField()),
            (
                "asset",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"),
            ),
            ("rail", models.CharField(max_length=16)),
            ("destination", models.CharField(max_length=200)),
            ("next_rail", models.CharField(blank=True, max_length=16)),
            ("next_destination", models.CharField(blank=True, max_length=200)),
            ("next_from", models.DateTimeField(blank=True, null=True)),
            (
                "schedule",
                models.CharField(
                    choices=[("daily", "Daily"), ("weekly", "Weekly"), ("manual", "Manual")],
                    default="daily",
                    max_length=8,
                ),
            ),
            ("minimum", billing.fields.AmountField()),
            ("due_at", models.DateTimeField(blank=True, null=True)),
            ("failures", models.PositiveSmallIntegerField(default=0)),
            ("last_error", models.TextField(blank=True)),
            ("version", models.PositiveIntegerField(default=1)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("updated_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "verbose_name_plural": "payout settings",
            "indexes": [
                models.Index(
                    condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="payout_settings_due"
                )
            ],
            "constraints": [
                models.UniqueConstraint(fields=("provider_id", "asset"), name="payout_settings_once"),
                models.CheckConstraint(
                    condition=models.Q(("schedule__in", ["daily", "weekly", "manual"])), name="payout_schedule_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("due_at", None), ("schedule", "manual")),
                        models.Q(models.Q(("schedule", "manual"), _negated=True), ("due_at__isnull", False)),
                        _connector="OR",
                    ),
                    name="payout_schedule_has_its_time",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("next_destination", ""), ("next_from", None), ("next_rail", "")),
                        models.Q(
                            ("next_from__isnull", False),
                            models.Q(("next_destination", ""), _negated=True),
                            models.Q(("next_rail", ""), _negated=True),
                        ),
                        _connector="OR",
                    ),
                    name="next_destination_has_its_time",
                ),
                models.CheckConstraint(condition=models.Q(("minimum__gte", 0)), name="payout_minimum_nonnegative"),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("destination", ""), _negated=True), models.Q(("rail", ""), _negated=True)
                    ),
                    name="payout_settings_name_a_place",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Payout",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("provider_id", models.UUIDField(db_index=True)),
            ("rail", models.CharField(max_length=16)),
            (
                "asset",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"),
            ),
            ("amount", billing.fields.AmountField()),
            ("cost", billing.fields.AmountField(default=0)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("requested", "Requested"),
                        ("reserved", "Reserved"),
                        ("submitted", "Submitted"),
                        ("confirmed", "Confirmed"),
                        ("failed", "Failed"),
                        ("returned", "Returned"),
                    ],
                    default="requested",
                    max_length=16,
                ),
            ),
            ("destination", models.CharField(max_length=200)),
            (
                "pending_transfer",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="payout",
                    to="billing.transfer",
                ),
            ),
            ("batch_id", models.UUIDField(blank=True, db_index=True, null=True)),
            (
                "retry_of",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="retry",
                    to="billing.payout",
                ),
            ),
            ("external_id", models.CharField(blank=True, max_length=200)),
            ("last_error", models.TextField(blank=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("checked_at", models.DateTimeField(blank=True, null=True)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "indexes": [
                models.Index(fields=["provider_id", "-created_at"], name="payouts_of_provider"),
                models.Index(
                    condition=models.Q(("state__in", ["reserved", "submitted"])),
                    fields=["rail", "checked_at"],
                    name="payouts_followed",
                ),
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("state__in", ["requested", "reserved", "submitted", "confirmed", "failed", "returned"])
                    ),
                    name="payout_state_known",
                ),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="payout_amount_positive"),
                models.CheckConstraint(condition=models.Q(("cost__gte", 0)), name="payout_cost_nonnegative"),
                models.UniqueConstraint(
                    condition=models.Q(("state__in", ["requested", "reserved", "submitted"])),
                    fields=("provider_id", "asset"),
                    name="one_payout_under_way",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("state__in", ["requested", "failed"]), ("pending_transfer__isnull", False), _connector="OR"
                    ),
                    name="payout_reserves_before_it_leaves",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="BankLeg",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "payout",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="bank_leg", to="billing.payout"
                ),
            ),
            (
                "state",
                models.CharField(
                    choices=[
                        ("sending", "Sending"),
                        ("refused", "Refused"),
                        ("sent", "Sent"),
                        ("paid", "Paid"),
                        ("sent_back", "Sent Back"),
                        ("returned", "Returned"),
                        ("left_at_stripe", "Left"),
                    ],
                    default="sending",
                    max_length=16,
                ),
            ),
            ("bank_payout_id", models.CharField(blank=True, db_index=True, max_length=120)),
            ("tries", models.PositiveSmallIntegerField(default=0)),
            ("message", models.TextField(blank=True)),
            ("next_at", models.DateTimeField(blank=True, null=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [
                models.Index(condition=models.Q(("next_at__isnull", False)), fields=["next_at"], name="bank_leg_due")
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("state__in", ["sending", "refused", "sent", "paid", "sent_back", "returned", "left_at_stripe"])
                    ),
                    name="bank_leg_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(("next_at", None), ("state__in", ["refused", "sent_back"]), _connector="OR"),
                    name="bank_leg_retries_refusals",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="ReserveSlice",
        fields=[
            (
                "share",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT,
                    primary_key=True,
                    related_name="reserve_slice",
                    serialize=False,
                    to="billing.settlementshare",
                ),
            ),
            ("provider_id", models.UUIDField()),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("amount", billing.fields.AmountField()),
            ("release_at", models.DateTimeField()),
            ("released_at", models.DateTimeField(blank=True, null=True)),
            ("released", billing.fields.AmountField(default=0)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("released_at", None)), fields=["release_at"], name="reserve_slice_ripens"
                ),
                models.Index(fields=["provider_id", "asset"], name="reserve_slice_of_provider"),
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("amount__gte", 0), ("released__gte", 0), ("released__lte", models.F("amount"))),
                    name="reserve_slice_releases_its_amount_at_most",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="FakeMovement",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("ref", models.CharField(max_length=200, unique=True)),
            ("payout_id", models.UUIDField(db_index=True)),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("amount", billing.fields.AmountField()),
            ("at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [models.Index(fields=["at"], name="fake_movement_at")],
        },
    ),
    migrations.CreateModel(
        name="TokenPrice",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "asset",
                models.ForeignKey(
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="prices",
                    to="billing.asset",
                ),
            ),
            ("usd_micros_per_token", billing.fields.AmountField()),
            (
                "source",
                models.CharField(
                    choices=[("fixed", "Fixed"), ("operator", "Operator"), ("feeds", "Feeds")], max_length=16
                ),
            ),
            ("detail", models.CharField(blank=True, max_length=400)),
            ("observed_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [models.Index(fields=["asset", "-observed_at"], name="token_price_newest")],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("usd_micros_per_token__gt", 0),
                        (
                            "usd_micros_per_token__lte",
                            115792089237316195423570985008687907853269984665640564039457584007913129639935,
                        ),
                    ),
                    name="token_price_in_range",
                ),
                models.CheckConstraint(
                    condition=models.Q(("source__in", ["fixed", "operator", "feeds"])), name="token_price_source_known"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="PromoCode",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("code", models.CharField(max_length=40, unique=True)),
            ("amount", billing.fields.AmountField(help_text="In micro-USD: 1 dollar is 1000000.")),
            ("uses_max", models.PositiveIntegerField()),
            ("uses_per_organisation_max", models.PositiveIntegerField(default=1)),
            (
                "valid_days",
                models.PositiveIntegerField(default=90, help_text="How long the credit lasts once it is given."),
            ),
            ("valid_until", models.DateTimeField(help_text="After this nobody can use the code.")),
            ("is_active", models.BooleanField(default=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("code", django.db.models.functions.text.Upper("code")), models.Q(("code", ""), _negated=True)
                    ),
                    name="promo_code_in_upper_case",
                ),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="promo_code_amount_positive"),
            ],
        },
    ),
    migrations.CreateModel(
        name="PromotionGrant",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("owner_id", models.UUIDField()),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("amount", billing.fields.AmountField()),
            ("left", billing.fields.AmountField()),
            (
                "code",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="grants",
                    to="billing.promocode",
                ),
            ),
            ("reference", models.CharField(max_length=200, unique=True)),
            ("actor", models.CharField(max_length=120)),
            ("expires_at", models.DateTimeField()),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("left__gt", 0)),
                    fields=["owner_id", "expires_at"],
                    name="grant_with_something_left",
                ),
                models.Index(condition=models.Q(("left__gt", 0)), fields=["expires_at"], name="grant_to_expire"),
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("amount__gt", 0), ("left__gte", 0), ("left__lte", models.F("amount"))),
                    name="grant_left_within_amount",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="PromotionDraw",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "grant",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="draws", to="billing.promotiongrant"
                ),
            ),
            ("job_id", models.UUIDField(db_index=True)),
            ("amount", billing.fields.AmountField()),
            ("returned", billing.fields.AmountField(default=0)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("amount__gt", 0), ("returned__gte", 0), ("returned__lte", models.F("amount"))),
                    name="draw_returns_at_most_all",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="SolvencyReport",
        fields=[
            ("number", models.PositiveBigIntegerField(primary_key=True, serialize=False)),
            ("body", models.JSONField()),
            ("signature", models.CharField(max_length=88)),
            ("server_public_key", models.CharField(max_length=64)),
            ("commitment", models.CharField(max_length=64, unique=True)),
            ("last_seq", models.PositiveBigIntegerField()),
            ("secret", models.BinaryField()),
            ("is_daily", models.BooleanField()),
            ("at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(condition=models.Q(("number__gte", 1)), name="solvency_report_numbered")
            ],
        },
    ),
    migrations.CreateModel(
        name="SolvencyChunk",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "report",
                models.ForeignKey(
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="chunks",
                    to="billing.solvencyreport",
                ),
            ),
            (
                "asset",
                models.ForeignKey(
                    db_constraint=False,
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="billing.asset",
                ),
            ),
            ("number", models.PositiveIntegerField()),
            ("first_owner", models.BinaryField()),
            ("hash", models.BinaryField()),
            ("sum", billing.fields.SumField()),
            ("leaves", models.BinaryField()),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("report", "asset", "number"), name="solvency_chunk_once"),
                models.CheckConstraint(condition=models.Q(("sum__gt", 0)), name="solvency_chunk_positive"),
            ],
        },
    ),
    migrations.CreateModel(
        name="StakeSlash",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "offence",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="slashes", to="billing.offence"
                ),
            ),
            (
                "contract",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="slashes", to="billing.escrowcontract"
                ),
            ),
            ("wallet", models.CharField(max_length=42)),
            ("owed", billing.fields.AmountField()),
            ("wanted", billing.fields.AmountField()),
            ("prices", models.JSONField(blank=True, default=list)),
            ("evidence_hash", models.CharField(max_length=66)),
            ("customer", models.CharField(blank=True, max_length=42)),
            ("customer_bps", models.PositiveIntegerField(default=0)),
            ("slashed", billing.fields.AmountField(default=0)),
            ("compensated", billing.fields.AmountField(default=0)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("waiting", "Waiting"),
                        ("sent", "Sent"),
                        ("slashed", "Slashed"),
                        ("compensated", "Compensated"),
                        ("forgone", "Forgone"),
                    ],
                    default="waiting",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=200)),
            (
                "transaction",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="stake_slashes",
                    to="billing.chaintransaction",
                ),
            ),
            ("next_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "verbose_name_plural": "stake slashes",
            "indexes": [
                models.Index(
                    condition=models.Q(("state__in", ["waiting", "sent", "slashed"])),
                    fields=["next_at"],
                    name="stake_slash_live",
                )
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["waiting", "sent", "slashed", "compensated", "forgone"])),
                    name="stake_slash_state_known",
                ),
                models.UniqueConstraint(fields=("offence", "contract"), name="stake_slash_once_per_offence"),
                models.CheckConstraint(
                    condition=models.Q(
                        ("compensated__gte", 0),
                        ("customer_bps__lte", 10000),
                        ("owed__gt", 0),
                        ("slashed__gte", 0),
                        ("wanted__gt", 0),
                    ),
                    name="stake_slash_amounts",
                ),
                models.CheckConstraint(
                    condition=models.Q(("compensated__lte", models.F("slashed"))),
                    name="stake_slash_compensates_its_own",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="TopUp",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("owner_id", models.UUIDField(db_index=True)),
            ("amount", billing.fields.AmountField()),
            (
                "method",
                models.CharField(
                    choices=[("checkout", "Checkout"), ("saved_card", "Saved Card"), ("automatic", "Automatic")],
                    max_length=16,
                ),
            ),
            (
                "card",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="billing.savedcard",
                ),
            ),
            ("actor", models.CharField(max_length=120)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("requested", "Requested"),
                        ("open", "Open"),
                        ("succeeded", "Succeeded"),
                        ("failed", "Failed"),
                        ("expired", "Expired"),
                    ],
                    default="requested",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=64)),
            ("message", models.TextField(blank=True)),
            ("session_id", models.CharField(blank=True, max_length=120)),
            ("checkout_url", models.TextField(blank=True)),
            ("intent_id", models.CharField(blank=True, max_length=120)),
            ("charge_id", models.CharField(blank=True, db_index=True, max_length=120)),
            ("tax", billing.fields.AmountField(default=0)),
            ("fee", billing.fields.AmountField(default=0)),
            ("rail", models.CharField(db_default="stripe", default="stripe", max_length=16)),
            ("is_fake", models.BooleanField(default=False)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("credited_at", models.DateTimeField(blank=True, null=True)),
            ("spendable_at", models.DateTimeField(blank=True, null=True)),
            ("row_digest", models.CharField(db_default="", default="", editable=False, max_length=64)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("state__in", ["requested", "open"])),
                    fields=["created_at"],
                    name="top_up_under_way",
                )
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["requested", "open", "succeeded", "failed", "expired"])),
                    name="top_up_state_known",
                ),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="top_up_amount_positive"),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("credited_at__isnull", False), ("state", "succeeded")),
                        models.Q(models.Q(("state", "succeeded"), _negated=True), ("credited_at", None)),
                        _connector="OR",
                    ),
                    name="top_up_succeeded_is_credited",
                ),
                models.UniqueConstraint(
                    condition=models.Q(("method", "automatic"), ("state__in", ["requested", "open"])),
                    fields=("owner_id",),
                    name="one_automatic_top_up_at_a_time",
                ),
                models.UniqueConstraint(
                    condition=models.Q(("intent_id", ""), _negated=True),
                    fields=("intent_id",),
                    name="one_top_up_per_payment_intent",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="AutoTopUp",
        fields=[
            ("owner_id", models.UUIDField(primary_key=True, serialize=False)),
            ("threshold", billing.fields.AmountField()),
            ("amount", billing.fields.AmountField()),
            ("monthly_max", billing.fields.AmountField()),
            ("is_enabled", models.BooleanField(default=True)),
            ("actor", models.CharField(max_length=120)),
            ("failures", models.PositiveSmallIntegerField(default=0)),
            ("paused_at", models.DateTimeField(blank=True, null=True)),
            ("pause_reason", models.CharField(blank=True, max_length=200)),
            ("updated_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("amount__gt", 0), ("monthly_max__gte", models.F("amount")), ("threshold__gte", 0)
                    ),
                    name="auto_top_up_makes_sense",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="TopUpRefund",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "top_up",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="refunds", to="billing.topup"
                ),
            ),
            ("amount", billing.fields.AmountField()),
            (
                "state",
                models.CharField(
                    choices=[("requested", "Requested"), ("succeeded", "Succeeded"), ("failed", "Failed")],
                    default="requested",
                    max_length=16,
                ),
            ),
            ("stripe_id", models.CharField(blank=True, max_length=120, null=True, unique=True)),
            ("shortage", billing.fields.AmountField(default=0)),
            (
                "pending_transfer",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="top_up_refund",
                    to="billing.transfer",
                ),
            ),
            ("message", models.TextField(blank=True)),
            ("actor", models.CharField(max_length=120)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["requested", "succeeded", "failed"])),
                    name="top_up_refund_state_known",
                ),
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="top_up_refund_amount_positive"),
                models.CheckConstraint(
                    condition=models.Q(("shortage__gte", 0), ("shortage__lte", models.F("amount"))),
                    name="top_up_refund_shortage_is_part_of_it",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="CardDispute",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("stripe_id", models.CharField(max_length=120, unique=True)),
            (
                "top_up",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="disputes", to="billing.topup"
                ),
            ),
            ("amount", billing.fields.AmountField()),
            ("loss", billing.fields.AmountField(default=0)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("inquiry", "Inquiry"),
                        ("open", "Open"),
                        ("closed", "Closed"),
                        ("won", "Won"),
                        ("lost", "Lost"),
                    ],
                    default="inquiry",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=64)),
            ("evidence_due_at", models.DateTimeField(blank=True, null=True)),
            ("evidence", models.TextField(blank=True)),
            ("evidence_sent_at", models.DateTimeField(blank=True, null=True)),
            ("frozen_at", models.DateTimeField(blank=True, null=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("closed_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["inquiry", "open", "closed", "won", "lost"])),
                    name="card_dispute_state_known",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="FraudWarning",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("stripe_id", models.CharField(max_length=120, unique=True)),
            (
                "top_up",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="fraud_warnings", to="billing.topup"
                ),
            ),
            ("fraud_type", models.CharField(blank=True, max_length=64)),
            ("is_actionable", models.BooleanField(default=True)),
            ("frozen_at", models.DateTimeField(blank=True, null=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
    ),
    migrations.CreateModel(
        name="ChargebackRecovery",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "dispute",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="recoveries", to="billing.carddispute"
                ),
            ),
            (
                "account",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.account"),
            ),
            ("amount", billing.fields.AmountField()),
            (
                "transfer",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.transfer"
                ),
            ),
            (
                "given_back",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="billing.transfer",
                ),
            ),
        ],
        options={
            "constraints": [
                models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="recovery_amount_positive")
            ],
        },
    ),
    migrations.CreateModel(
        name="TransferReversal",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "dispute",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="reversals", to="billing.carddispute"
                ),
            ),
            ("provider_id", models.UUIDField()),
            ("stripe_transfer_id", models.CharField(max_length=120)),
            ("amount", billing.fields.AmountField()),
            (
                "state",
                models.CharField(
                    choices=[("requested", "Requested"), ("succeeded", "Succeeded"), ("refused", "Refused")],
                    default="requested",
                    max_length=16,
                ),
            ),
            ("message", models.TextField(blank=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("dispute", "stripe_transfer_id"), name="one_reversal_per_transfer"),
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["requested", "succeeded", "refused"])),
                    name="transfer_reversal_state_known",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="UsageReceipt",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("job_id", models.UUIDField(db_index=True)),
            ("lease_id", models.UUIDField()),
            ("seq", models.PositiveBigIntegerField()),
            ("billable_ms", models.PositiveBigIntegerField()),
            ("cumulative_amount", billing.fields.AmountField()),
            ("provider", models.CharField(max_length=42)),
            ("customer", models.CharField(max_length=42)),
            ("asset", models.CharField(max_length=42)),
            ("chain_id", models.PositiveBigIntegerField(default=0)),
            ("contract", models.CharField(default="0x0000000000000000000000000000000000000000", max_length=42)),
            ("meter_hash", models.CharField(max_length=66)),
            ("prev_digest", models.CharField(max_length=66)),
            ("digest", models.CharField(max_length=66, unique=True)),
            ("signature", models.CharField(max_length=132)),
            ("signer", models.CharField(max_length=42)),
            ("received_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("row_digest", models.CharField(default="", editable=False, max_length=64)),
        ],
        options={
            "ordering": ["lease_id", "seq"],
            "constraints": [
                models.UniqueConstraint(fields=("lease_id", "seq"), name="one_receipt_per_seq"),
                models.CheckConstraint(condition=models.Q(("seq__gte", 1)), name="receipt_seq_from_one"),
                models.CheckConstraint(
                    condition=models.Q(("cumulative_amount__gte", 0)), name="receipt_amount_nonnegative"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="ReceiptEvidence",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("job_id", models.UUIDField()),
            ("lease_id", models.UUIDField(db_index=True)),
            ("seq", models.PositiveBigIntegerField()),
            ("signer", models.CharField(max_length=42)),
            ("accepted_digest", models.CharField(max_length=66)),
            ("other_digest", models.CharField(max_length=66)),
            ("accepted", models.JSONField()),
            ("other", models.JSONField()),
            ("chain_id", models.PositiveBigIntegerField(default=0)),
            ("contract", models.CharField(default="0x0000000000000000000000000000000000000000", max_length=42)),
            ("found_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("row_digest", models.CharField(default="", editable=False, max_length=64)),
        ],
        options={
            "verbose_name_plural": "receipt evidence",
            "constraints": [models.UniqueConstraint(fields=("lease_id", "seq", "other_digest"), name="evidence_once")],
        },
    ),
)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    replaces = [
        ("billing", "0001_ledger"),
        ("billing", "0003_assets_of_holds"),
        ("billing", "0004_kinds_of_the_outside"),
        ("billing", "0005_domain_of_receipts"),
        ("billing", "0006_disputed_shares"),
        ("billing", "0011_make_way"),
        ("billing", "0012_ledger_widths"),
        ("billing", "0015_row_digests"),
        ("billing", "0017_quotes"),
        ("billing", "0020_chain"),
        ("billing", "0030_fiat"),
        ("billing", "0032_refund_shortages"),
        ("billing", "0040_payouts"),
        ("billing", "0050_alerts"),
        ("billing", "0051_prices"),
        ("billing", "0054_faults"),
        ("billing", "0060_escrow_of_jobs"),
        ("billing", "0062_known_receipt_keys"),
        ("billing", "0063_stake_slashes"),
        ("billing", "0066_forget_people"),
        ("billing", "0075_solvency_proofs"),
        ("billing", "0090_usage_pay"),
        ("billing", "0091_parts_of_settlements"),
        ("billing", "0094_rail_of_top_ups"),
        ("billing", "0095_rail_of_fake_top_ups"),
        ("billing", "0096_corrections"),
        ("billing", "0098_digest_top_ups"),
        ("billing", "0099_transfers_by_reference"),
        ("billing", "0101_bank_legs"),
        ("billing", "0103_fraud_warnings"),
        ("billing", "0104_storage_code"),
        ("billing", "0105_escrow_by_customer_and_clock"),
        ("billing", "0106_read_contract_terms_again"),
        ("billing", "0107_shares_by_provider_and_window"),
    ]

    operations = [
        # The default of Transfer.seq draws from it, so it has to be there first.
        migrations.RunSQL("CREATE SEQUENCE billing_transfer_seq", "DROP SEQUENCE IF EXISTS billing_transfer_seq"),
        TABLES,
    ]
