"""Jobs, their attempts, leases and artifacts; endpoints; quotes and what was used."""

import billing.fields
import datetime
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import marketplace.foundation.clock
import marketplace.foundation.ids
import provider_agent.protocol.outcomes
from django.conf import settings
from django.db import migrations, models

from marketplace.foundation.many_models import CreateModels

TABLES = CreateModels(
    migrations.CreateModel(
        name="Quote",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="quotes", to="accounts.organisation"
                ),
            ),
            ("spec", models.JSONField()),
            ("spec_hash", models.CharField(max_length=64)),
            ("price_ceiling_usd_micros", models.PositiveBigIntegerField()),
            ("expected_usd_micros", models.PositiveBigIntegerField()),
            ("expected_seconds", models.FloatField(null=True)),
            ("cap_usd_micros", models.PositiveBigIntegerField()),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("usd_micros_per_token", billing.fields.AmountField(default=1000000)),
            ("price_source", models.CharField(blank=True, max_length=40)),
            ("price_observed_at", models.DateTimeField(blank=True, null=True)),
            ("providers", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
            ("plan", models.JSONField()),
            ("signature", models.CharField(max_length=120)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("expires_at", models.DateTimeField()),
        ],
        options={
            "constraints": [
                models.CheckConstraint(condition=models.Q(("cap_usd_micros__gt", 0)), name="quote_has_a_cap"),
                models.CheckConstraint(
                    condition=models.Q(
                        ("usd_micros_per_token__gt", 0),
                        models.Q(
                            models.Q(("asset", 1), ("usd_micros_per_token", 1000000)),
                            models.Q(
                                models.Q(("asset", 1), _negated=True),
                                models.Q(("price_source", ""), _negated=True),
                                ("price_observed_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                    ),
                    name="quote_in_a_token_has_its_price",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Job",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="jobs", to="accounts.organisation"
                ),
            ),
            (
                "submitted_by",
                models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL),
            ),
            (
                "quote",
                models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name="job", to="jobs.quote"),
            ),
            ("name", models.CharField(max_length=64)),
            ("kind", models.CharField(max_length=16)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("queued", "Queued"),
                        ("placed", "Placed"),
                        ("running", "Running"),
                        ("recovering", "Recovering"),
                        ("paused", "Paused"),
                        ("completed", "Completed"),
                        ("failed", "Failed"),
                        ("cancelled", "Cancelled"),
                    ],
                    default="queued",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=64)),
            ("message", models.TextField(blank=True)),
            ("waiting_for", models.TextField(blank=True)),
            ("spec", models.JSONField()),
            ("spec_hash", models.CharField(max_length=64)),
            ("sealed_secrets", models.TextField(blank=True)),
            (
                "input_artifact",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="jobs.artifact",
                ),
            ),
            ("priority", models.PositiveSmallIntegerField(default=50)),
            ("price_ceiling_usd_micros", models.PositiveBigIntegerField()),
            ("cap_usd_micros", models.PositiveBigIntegerField()),
            (
                "payment_mode",
                models.CharField(
                    choices=[("credits", "Credits"), ("escrow", "Escrow")], default="credits", max_length=8
                ),
            ),
            ("attempts_max", models.PositiveSmallIntegerField(default=5)),
            ("progress", models.JSONField(blank=True, default=dict)),
            ("deadline_at", models.DateTimeField(blank=True, null=True)),
            ("cancel_requested_at", models.DateTimeField(blank=True, null=True)),
            ("cancel_reason", models.CharField(blank=True, max_length=64)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("queued_at", models.DateTimeField()),
            ("unfunded_units", billing.fields.AmountField(blank=True, null=True)),
            ("skipped_until", models.DateTimeField(blank=True, null=True)),
            ("running_at", models.DateTimeField(blank=True, null=True)),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "indexes": [
                models.Index(fields=["state", "-priority", "queued_at"], name="job_queue"),
                models.Index(
                    condition=models.Q(("unfunded_units__isnull", False)), fields=["organisation"], name="jobs_unfunded"
                ),
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "state__in",
                            ["queued", "placed", "running", "recovering", "paused", "completed", "failed", "cancelled"],
                        )
                    ),
                    name="job_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(("kind__in", ["train", "serve", "command"])), name="job_kind_known"
                ),
                models.CheckConstraint(condition=models.Q(("cap_usd_micros__gt", 0)), name="job_has_a_cap"),
                models.CheckConstraint(
                    condition=models.Q(("payment_mode__in", ["credits", "escrow"])), name="job_payment_mode_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(("unfunded_units", None), ("unfunded_units__gt", 0), _connector="OR"),
                    name="job_lacks_an_amount_or_none",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="PriceLock",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "job",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="price_locks", to="jobs.job"
                ),
            ),
            ("number", models.PositiveIntegerField()),
            ("usd_micros_per_token", billing.fields.AmountField()),
            ("source", models.CharField(max_length=40)),
            ("observed_at", models.DateTimeField()),
            (
                "reason",
                models.CharField(
                    choices=[
                        ("renewed", "renewed"),
                        ("rose", "rose"),
                        ("agreed", "agreed"),
                        ("allowed", "allowed"),
                        ("confirmed", "confirmed"),
                    ],
                    max_length=16,
                ),
            ),
            ("actor", models.CharField(default="system", max_length=120)),
            ("attempts_before", models.PositiveSmallIntegerField(default=0)),
            ("charged_usd_micros", models.PositiveBigIntegerField(default=0)),
            ("charged_units", billing.fields.AmountField(default=0)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("job", "number"), name="price_locks_are_numbered"),
                models.CheckConstraint(
                    condition=models.Q(("usd_micros_per_token__gt", 0)), name="price_lock_has_a_price"
                ),
                models.CheckConstraint(
                    condition=models.Q(("reason__in", ["renewed", "rose", "agreed", "allowed", "confirmed"])),
                    name="price_lock_reason_known",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="PriceHalt",
        fields=[
            (
                "job",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE,
                    primary_key=True,
                    related_name="price_halt",
                    serialize=False,
                    to="jobs.job",
                ),
            ),
            ("usd_micros_per_token", billing.fields.AmountField(null=True)),
            ("source", models.CharField(blank=True, max_length=40)),
            ("observed_at", models.DateTimeField(null=True)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("observed_at", None), ("source", ""), ("usd_micros_per_token", None)),
                        models.Q(
                            ("observed_at__isnull", False),
                            ("usd_micros_per_token__gt", 0),
                            ("usd_micros_per_token__isnull", False),
                            models.Q(("source", ""), _negated=True),
                        ),
                        _connector="OR",
                    ),
                    name="price_halt_asks_for_a_whole_price",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="Attempt",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "job",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="attempts", to="jobs.job"),
            ),
            ("number", models.PositiveIntegerField()),
            ("slot", models.PositiveSmallIntegerField(default=0)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("assigned", "assigned"),
                        ("preparing", "preparing"),
                        ("running", "running"),
                        ("stopping", "stopping"),
                        ("succeeded", "succeeded"),
                        ("failed", "failed"),
                        ("cancelled", "cancelled"),
                        ("lost", "lost"),
                    ],
                    default="assigned",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=64)),
            ("fault", models.CharField(blank=True, max_length=16)),
            ("message", models.TextField(blank=True)),
            ("exit_code", models.IntegerField(blank=True, null=True)),
            (
                "resume_artifact",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="jobs.artifact",
                ),
            ),
            ("master_port", models.PositiveIntegerField(default=29500)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("running_at", models.DateTimeField(blank=True, null=True)),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "ordering": ["job", "number"],
            "constraints": [
                models.UniqueConstraint(fields=("job", "number"), name="attempts_are_numbered"),
                models.UniqueConstraint(
                    condition=models.Q(
                        (
                            "state__in",
                            [
                                provider_agent.protocol.outcomes.AttemptState["ASSIGNED"],
                                provider_agent.protocol.outcomes.AttemptState["PREPARING"],
                                provider_agent.protocol.outcomes.AttemptState["RUNNING"],
                                provider_agent.protocol.outcomes.AttemptState["STOPPING"],
                            ],
                        )
                    ),
                    fields=("job", "slot"),
                    name="one_live_attempt_per_slot",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "state__in",
                            [
                                "assigned",
                                "cancelled",
                                "failed",
                                "lost",
                                "preparing",
                                "running",
                                "stopping",
                                "succeeded",
                            ],
                        )
                    ),
                    name="attempt_state_known",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Lease",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "attempt",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="leases", to="jobs.attempt"
                ),
            ),
            (
                "node",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="leases", to="nodes.node"),
            ),
            (
                "offer",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="leases", to="nodes.offer"),
            ),
            (
                "state",
                models.CharField(
                    choices=[("reserved", "Reserved"), ("active", "Active"), ("ended", "Ended")],
                    default="reserved",
                    max_length=16,
                ),
            ),
            ("fence", models.BigIntegerField(unique=True)),
            ("node_rank", models.PositiveSmallIntegerField(default=0)),
            ("device_count", models.PositiveSmallIntegerField()),
            ("price_usd_micros_per_device_hour", models.PositiveBigIntegerField()),
            ("rate_usd_micros_per_hour", models.PositiveBigIntegerField()),
            ("cap_usd_micros", models.PositiveBigIntegerField()),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("rate_units_per_hour", billing.fields.AmountField()),
            ("cap_units", billing.fields.AmountField()),
            (
                "price_lock",
                models.ForeignKey(
                    db_index=False,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="jobs.pricelock",
                ),
            ),
            ("payment", models.JSONField(blank=True, default=dict)),
            ("lease_until", models.DateTimeField()),
            ("stop_reason", models.CharField(blank=True, max_length=64)),
            ("stop_asked_at", models.DateTimeField(blank=True, null=True)),
            (
                "reported_state",
                models.CharField(
                    choices=[
                        ("assigned", "assigned"),
                        ("preparing", "preparing"),
                        ("running", "running"),
                        ("stopping", "stopping"),
                        ("succeeded", "succeeded"),
                        ("failed", "failed"),
                        ("cancelled", "cancelled"),
                        ("lost", "lost"),
                    ],
                    default="assigned",
                    max_length=16,
                ),
            ),
            ("reported_reason", models.CharField(blank=True, max_length=64)),
            ("reported_message", models.TextField(blank=True)),
            ("exit_code", models.IntegerField(blank=True, null=True)),
            ("reported_at", models.DateTimeField(blank=True, null=True)),
            ("running_at", models.DateTimeField(blank=True, null=True)),
            ("observed_until", models.DateTimeField(blank=True, null=True)),
            ("log_bytes", models.PositiveBigIntegerField(default=0)),
            ("event_bytes", models.PositiveBigIntegerField(default=0)),
            ("log_bytes_final", models.PositiveBigIntegerField(blank=True, null=True)),
            ("event_bytes_final", models.PositiveBigIntegerField(blank=True, null=True)),
            ("receipt_seq_final", models.PositiveBigIntegerField(blank=True, null=True)),
            ("billable_ms", models.PositiveBigIntegerField(blank=True, null=True)),
            ("charge_usd_micros", models.PositiveBigIntegerField(blank=True, null=True)),
            ("charge_units", billing.fields.AmountField(blank=True, null=True)),
            ("charged_seq", models.PositiveBigIntegerField(blank=True, null=True)),
            ("checkpoint_ms", models.PositiveBigIntegerField(blank=True, null=True)),
            ("reserved_at", models.DateTimeField(auto_now_add=True)),
            ("active_at", models.DateTimeField(blank=True, null=True)),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
            ("devices", models.ManyToManyField(related_name="leases", through="jobs.LeaseDevice", to="nodes.device")),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("state__in", ["active", "reserved"])),
                    fields=["node"],
                    name="lease_live_by_node",
                ),
                models.Index(
                    condition=models.Q(("state__in", ["active", "reserved"])),
                    fields=["lease_until"],
                    name="lease_live_until",
                ),
            ],
            "constraints": [
                models.UniqueConstraint(fields=("attempt", "node_rank"), name="one_lease_per_rank"),
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["reserved", "active", "ended"])), name="lease_state_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "rate_usd_micros_per_hour",
                            django.db.models.expressions.CombinedExpression(
                                models.F("price_usd_micros_per_device_hour"), "*", models.F("device_count")
                            ),
                        )
                    ),
                    name="lease_rate_is_price_times_devices",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("charge_usd_micros", None),
                        ("charge_usd_micros__lte", models.F("cap_usd_micros")),
                        _connector="OR",
                    ),
                    name="lease_charge_within_cap",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("charge_units", None),
                        models.Q(("charge_units__gte", 0), ("charge_units__lte", models.F("cap_units"))),
                        _connector="OR",
                    ),
                    name="lease_charge_units_within_cap",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("asset", 1), _negated=True),
                        models.Q(
                            ("cap_units", models.F("cap_usd_micros")),
                            ("rate_units_per_hour", models.F("rate_usd_micros_per_hour")),
                            models.Q(
                                models.Q(("charge_units", None), ("charge_usd_micros", None)),
                                models.Q(
                                    ("charge_units__isnull", False),
                                    ("charge_usd_micros__isnull", False),
                                    ("charge_units", models.F("charge_usd_micros")),
                                ),
                                _connector="OR",
                            ),
                        ),
                        _connector="OR",
                    ),
                    name="lease_in_dollars_counts_in_dollars",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("asset", 1), ("payment", {})),
                        models.Q(models.Q(("asset", 1), _negated=True), models.Q(("payment", {}), _negated=True)),
                        _connector="OR",
                    ),
                    name="lease_in_a_token_has_its_terms",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="LeaseDevice",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "lease",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="lease_devices", to="jobs.lease"
                ),
            ),
            (
                "device",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="lease_devices", to="nodes.device"
                ),
            ),
            ("is_live", models.BooleanField(default=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("lease", "device"), name="device_once_per_lease"),
                models.UniqueConstraint(
                    condition=models.Q(("is_live", True)), fields=("device",), name="one_live_lease_per_device"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Artifact",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="artifacts", to="accounts.organisation"
                ),
            ),
            (
                "job",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="artifacts",
                    to="jobs.job",
                ),
            ),
            (
                "attempt",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="artifacts",
                    to="jobs.attempt",
                ),
            ),
            (
                "kind",
                models.CharField(
                    choices=[("input", "Input"), ("checkpoint", "Checkpoint"), ("output", "Output")], max_length=16
                ),
            ),
            ("step", models.PositiveBigIntegerField(blank=True, null=True)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("uploading", "Uploading"),
                        ("complete", "Complete"),
                        ("abandoned", "Abandoned"),
                        ("deleted", "Deleted"),
                    ],
                    default="uploading",
                    max_length=16,
                ),
            ),
            ("parts_expected", models.PositiveSmallIntegerField(default=1)),
            ("size_bytes", models.PositiveBigIntegerField(default=0)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("completed_at", models.DateTimeField(blank=True, null=True)),
            ("condemned_at", models.DateTimeField(blank=True, null=True)),
            ("kept_until", models.DateTimeField(blank=True, null=True)),
            ("warned_at", models.DateTimeField(blank=True, null=True)),
            ("unpaid_until", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("state", "complete")), fields=["kept_until"], name="artifact_kept_until"
                ),
                models.Index(
                    condition=models.Q(("state", "complete"), ("unpaid_until__isnull", False)),
                    fields=["unpaid_until"],
                    name="artifact_unpaid_until",
                ),
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["uploading", "complete", "abandoned", "deleted"])),
                    name="artifact_state_known",
                ),
                models.UniqueConstraint(
                    condition=models.Q(("attempt__isnull", False)),
                    fields=("attempt", "kind", "step"),
                    name="one_artifact_per_attempt_and_step",
                    nulls_distinct=False,
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="ArtifactPart",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "artifact",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="parts", to="jobs.artifact"
                ),
            ),
            (
                "lease",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="artifact_parts",
                    to="jobs.lease",
                ),
            ),
            ("node_rank", models.PositiveSmallIntegerField(default=0)),
            ("files", models.JSONField()),
            ("file_count", models.PositiveIntegerField(db_default=0, default=0)),
            ("billable_ms", models.PositiveBigIntegerField(default=0)),
            ("is_complete", models.BooleanField(default=False)),
            ("urls_until", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("artifact", "node_rank"), name="one_part_per_rank")],
        },
    ),
    migrations.CreateModel(
        name="StorageQuota",
        fields=[
            (
                "organisation",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE,
                    primary_key=True,
                    related_name="+",
                    serialize=False,
                    to="accounts.organisation",
                ),
            ),
            ("bytes_max", models.PositiveBigIntegerField()),
        ],
    ),
    migrations.CreateModel(
        name="StorageCharge",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "organisation",
                models.ForeignKey(
                    db_index=False,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="accounts.organisation",
                ),
            ),
            ("day", models.DateField(db_index=True)),
            ("kept_bytes", models.PositiveBigIntegerField()),
            ("free_bytes", models.PositiveBigIntegerField()),
            ("usd_micros_per_gib_month", models.PositiveBigIntegerField()),
            ("due_usd_micros", models.PositiveBigIntegerField()),
            ("charged_usd_micros", models.PositiveBigIntegerField()),
            ("is_paid", models.BooleanField()),
            ("remainder", models.PositiveBigIntegerField()),
            ("charged_at", models.DateTimeField()),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("organisation", "day"), name="one_storage_charge_a_day"),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("charged_usd_micros", models.F("due_usd_micros")), ("is_paid", True)),
                        models.Q(("charged_usd_micros", 0), ("is_paid", False)),
                        _connector="OR",
                    ),
                    name="storage_day_is_paid_whole_or_not",
                ),
                models.CheckConstraint(
                    condition=models.Q(("remainder__lt", 32212254720)), name="storage_remainder_below_one_micro"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Endpoint",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "job",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="endpoint", to="jobs.job"
                ),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="endpoints", to="accounts.organisation"
                ),
            ),
            ("model", models.CharField(max_length=96)),
            ("is_open", models.BooleanField(default=True)),
            ("desired", models.PositiveSmallIntegerField(default=0)),
            ("desired_why", models.CharField(blank=True, max_length=200)),
            ("wanted_at", models.DateTimeField(blank=True, null=True)),
            ("is_rollback_requested", models.BooleanField(db_column="take_back", default=False)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("is_open", True)),
                    fields=("organisation", "model"),
                    name="one_open_endpoint_a_name",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="EndpointVersion",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "endpoint",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="jobs.endpoint"
                ),
            ),
            ("number", models.PositiveIntegerField()),
            ("spec", models.JSONField()),
            (
                "input_artifact",
                models.ForeignKey(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.PROTECT,
                    related_name="+",
                    to="jobs.artifact",
                ),
            ),
            (
                "state",
                models.CharField(
                    choices=[
                        ("starting", "Starting"),
                        ("live", "Live"),
                        ("retired", "Retired"),
                        ("rolled_back", "Rolled Back"),
                    ],
                    default="starting",
                    max_length=16,
                ),
            ),
            ("share", models.PositiveSmallIntegerField(default=0)),
            ("reason", models.CharField(blank=True, max_length=64)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("stepped_at", models.DateTimeField(blank=True, null=True)),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "ordering": ["endpoint", "number"],
            "constraints": [
                models.UniqueConstraint(fields=("endpoint", "number"), name="versions_are_numbered"),
                models.CheckConstraint(condition=models.Q(("share__lte", 100)), name="version_share_is_a_percentage"),
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["starting", "live", "retired", "rolled_back", "taken_back"])),
                    name="version_state_known",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Replica",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "endpoint",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="replicas", to="jobs.endpoint"
                ),
            ),
            (
                "version",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="replicas", to="jobs.endpointversion"
                ),
            ),
            (
                "attempt",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="replica", to="jobs.attempt"
                ),
            ),
            ("is_on_demand", models.BooleanField(default=False)),
            (
                "state",
                models.CharField(
                    choices=[("starting", "Starting"), ("ready", "Ready"), ("draining", "Draining"), ("gone", "Gone")],
                    default="starting",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=64)),
            ("facts", models.JSONField(blank=True, default=dict)),
            ("load", models.JSONField(blank=True, default=dict)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("ready_at", models.DateTimeField(blank=True, null=True)),
            ("seen_at", models.DateTimeField(blank=True, null=True)),
            ("draining_at", models.DateTimeField(blank=True, null=True)),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "indexes": [
                models.Index(
                    condition=models.Q(("state__in", ["draining", "ready", "starting"])),
                    fields=["endpoint"],
                    name="replica_live",
                )
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["starting", "ready", "draining", "gone"])),
                    name="replica_state_known",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="Gateway",
        fields=[
            ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
            ("boot_id", models.UUIDField()),
            ("url", models.CharField(blank=True, max_length=300)),
            ("public_key", models.CharField(blank=True, max_length=64)),
            ("usage_seq", models.PositiveBigIntegerField(default=0)),
            ("loads", models.JSONField(blank=True, default=dict)),
            ("seen_at", models.DateTimeField()),
        ],
    ),
    migrations.CreateModel(
        name="EndpointMinute",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "endpoint",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="minutes", to="jobs.endpoint"
                ),
            ),
            ("minute", models.PositiveBigIntegerField()),
            ("ticks", models.PositiveIntegerField(default=0)),
            ("load_sum", models.FloatField(default=0)),
            ("in_flight_sum", models.FloatField(default=0)),
            ("arrived", models.PositiveIntegerField(default=0)),
            ("served", models.PositiveIntegerField(default=0)),
            ("failed", models.PositiveIntegerField(default=0)),
            ("need_max", models.PositiveIntegerField(default=0)),
            ("desired", models.PositiveIntegerField(default=0)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("endpoint", "minute"), name="one_row_an_endpoint_and_minute")
            ],
        },
    ),
    migrations.CreateModel(
        name="ReplicaMinute",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "replica",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="minutes", to="jobs.replica"
                ),
            ),
            ("minute", models.PositiveBigIntegerField()),
            ("served", models.PositiveIntegerField(default=0)),
            ("failed", models.PositiveIntegerField(default=0)),
            ("output_tokens", models.PositiveBigIntegerField(default=0)),
            ("timed", models.PositiveIntegerField(default=0)),
            ("log_ms_sum", models.FloatField(default=0)),
            ("log_ms_squares", models.FloatField(default=0)),
            ("speeds", models.PositiveIntegerField(default=0)),
            ("speed_sum", models.FloatField(default=0)),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("replica", "minute"), name="one_row_a_replica_and_minute")],
        },
    ),
    migrations.CreateModel(
        name="Audit",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("request_id", models.UUIDField()),
            (
                "endpoint",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="audits", to="jobs.endpoint"
                ),
            ),
            (
                "lease",
                models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="audits", to="jobs.lease"),
            ),
            (
                "checked_by",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="audits_made", to="jobs.lease"
                ),
            ),
            (
                "verdict",
                models.CharField(
                    choices=[("match", "Match"), ("mismatch", "Mismatch"), ("unclear", "Unclear")], max_length=16
                ),
            ),
            ("detail", models.CharField(blank=True, max_length=2000)),
            ("at", models.DateTimeField()),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
        ],
        options={
            "indexes": [
                models.Index(condition=models.Q(("verdict", "match")), fields=["created_at"], name="audit_to_forget")
            ],
            "constraints": [
                models.UniqueConstraint(fields=("request_id", "lease", "checked_by"), name="audit_once_a_checker"),
                models.CheckConstraint(
                    condition=models.Q(("verdict__in", ["match", "mismatch", "unclear"])), name="audit_verdict_known"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="WrongReplica",
        fields=[
            (
                "lease",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT,
                    primary_key=True,
                    related_name="wrong",
                    serialize=False,
                    to="jobs.lease",
                ),
            ),
            (
                "node",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="wrong_replicas", to="nodes.node"
                ),
            ),
            ("because", models.CharField(max_length=500)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("audits", models.ManyToManyField(related_name="+", to="jobs.audit")),
        ],
    ),
    migrations.CreateModel(
        name="ReceiptDelegation",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "node",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="delegations", to="nodes.node"
                ),
            ),
            (
                "asset",
                models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.asset"
                ),
            ),
            ("chain_id", models.PositiveBigIntegerField()),
            ("contract", models.CharField(max_length=42)),
            ("wallet", models.CharField(max_length=42)),
            ("receipt_address", models.CharField(max_length=42)),
            ("not_after", models.DateTimeField()),
            ("nonce", billing.fields.AmountField()),
            ("signature", models.CharField(max_length=132)),
            ("created_by", models.CharField(max_length=120)),
            ("created_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ("told_at", models.DateTimeField(blank=True, null=True)),
            ("revoked_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    fields=("chain_id", "contract", "wallet", "nonce"), name="delegation_nonce_once"
                ),
                models.UniqueConstraint(
                    condition=models.Q(("revoked_at", None)),
                    fields=("node", "asset"),
                    name="one_delegation_per_node_and_asset",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="StreamChunk",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "lease",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="chunks", to="jobs.lease"),
            ),
            ("stream", models.CharField(choices=[("log", "Log"), ("event", "Event")], max_length=8)),
            ("offset", models.PositiveBigIntegerField()),
            ("data", models.BinaryField()),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("lease", "stream", "offset"), name="chunk_once_per_offset"),
                models.CheckConstraint(condition=models.Q(("stream__in", ["log", "event"])), name="chunk_stream_known"),
            ],
        },
    ),
    migrations.CreateModel(
        name="EndpointKey",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="endpoint_keys",
                    to="accounts.organisation",
                ),
            ),
            (
                "made_by",
                models.ForeignKey(
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="+",
                    to=settings.AUTH_USER_MODEL,
                ),
            ),
            (
                "kind",
                models.CharField(
                    choices=[("endpoint", "Endpoint"), ("session", "Session")], default="endpoint", max_length=16
                ),
            ),
            ("name", models.CharField(max_length=120)),
            ("prefix", models.CharField(max_length=16)),
            ("key_hash", models.CharField(max_length=64, unique=True)),
            ("endpoint_ids", models.JSONField(blank=True, null=True)),
            ("requests_per_minute", models.PositiveIntegerField(blank=True, null=True)),
            ("tokens_per_minute", models.PositiveIntegerField(blank=True, null=True)),
            ("in_flight_max", models.PositiveIntegerField(blank=True, null=True)),
            ("budget_usd_micros", models.PositiveBigIntegerField(blank=True, null=True)),
            (
                "budget_period",
                models.CharField(choices=[("total", "Total"), ("month", "Month")], default="total", max_length=8),
            ),
            ("spent_usd_micros", models.PositiveBigIntegerField(default=0)),
            ("spent_month_usd_micros", models.PositiveBigIntegerField(default=0)),
            ("spent_month", models.DateField(blank=True, null=True)),
            ("expires_at", models.DateTimeField(blank=True, null=True)),
            ("revoked_at", models.DateTimeField(blank=True, null=True)),
            ("last_used_at", models.DateTimeField(blank=True, null=True)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "ordering": ["-created_at"],
            "indexes": [
                models.Index(condition=models.Q(("kind", "session")), fields=["expires_at"], name="session_key_expiry")
            ],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("kind__in", ["endpoint", "session"])), name="endpoint_key_kind_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(("budget_period__in", ["total", "month"])), name="endpoint_key_period_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        models.Q(("kind", "session"), _negated=True), ("expires_at__isnull", False), _connector="OR"
                    ),
                    name="session_key_expires",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("expires_at", None),
                        models.Q(
                            ("expires_at__gte", datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)),
                            (
                                "expires_at__lte",
                                datetime.datetime(2999, 12, 31, 23, 59, 59, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        _connector="OR",
                    ),
                    name="endpoint_key_expires_within_calendar",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="KeySlice",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "key",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="slices", to="jobs.endpointkey"
                ),
            ),
            ("organisation_id", models.UUIDField()),
            ("gateway_id", models.UUIDField()),
            ("budget_usd_micros", models.PositiveBigIntegerField(default=0)),
            ("foreign_usd_micros", models.PositiveBigIntegerField(default=0)),
            ("expires_at", models.DateTimeField()),
        ],
        options={
            "indexes": [
                models.Index(fields=["gateway_id", "expires_at"], name="slice_of_gateway"),
                models.Index(fields=["organisation_id", "expires_at"], name="slice_of_organisation"),
            ],
            "constraints": [models.UniqueConstraint(fields=("key", "gateway_id"), name="one_slice_a_key_and_gateway")],
        },
    ),
    migrations.CreateModel(
        name="UsagePayment",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("payer_id", models.UUIDField(db_index=True)),
            ("owner_id", models.UUIDField(db_index=True)),
            ("endpoint_id", models.UUIDField()),
            ("records", models.PositiveIntegerField()),
            ("charged_usd_micros", models.PositiveBigIntegerField()),
            ("fee_usd_micros", models.PositiveBigIntegerField()),
            ("paid_usd_micros", models.PositiveBigIntegerField()),
            ("created_at", models.DateTimeField()),
        ],
        options={
            "ordering": ["-created_at"],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        (
                            "charged_usd_micros",
                            django.db.models.expressions.CombinedExpression(
                                models.F("fee_usd_micros"), "+", models.F("paid_usd_micros")
                            ),
                        ),
                        ("charged_usd_micros__gt", 0),
                    ),
                    name="usage_payment_splits_its_charge",
                ),
                models.CheckConstraint(
                    condition=models.Q(("payer_id", models.F("owner_id")), _negated=True),
                    name="usage_payment_between_two",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="UsageRecord",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("gateway_id", models.UUIDField()),
            ("seq", models.PositiveBigIntegerField()),
            ("request_id", models.UUIDField()),
            ("part", models.PositiveIntegerField()),
            ("key_id", models.UUIDField()),
            ("organisation_id", models.UUIDField()),
            ("owner_id", models.UUIDField()),
            ("endpoint_id", models.UUIDField()),
            ("version", models.PositiveIntegerField()),
            ("lease_id", models.UUIDField(blank=True, null=True)),
            ("model", models.CharField(max_length=200)),
            ("kind", models.CharField(max_length=16)),
            ("status", models.CharField(max_length=16)),
            ("input_tokens", models.PositiveBigIntegerField()),
            ("cached_tokens", models.PositiveBigIntegerField()),
            ("output_tokens", models.PositiveBigIntegerField()),
            ("cost_usd_micros", models.PositiveBigIntegerField()),
            ("queue_ms", models.PositiveBigIntegerField(default=0)),
            ("first_token_ms", models.PositiveBigIntegerField(blank=True, null=True)),
            ("total_ms", models.PositiveBigIntegerField(default=0)),
            ("at", models.DateTimeField()),
            ("received_at", models.DateTimeField()),
            (
                "payment",
                models.ForeignKey(
                    null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="jobs.usagepayment"
                ),
            ),
        ],
        options={
            "indexes": [
                models.Index(fields=["at"], name="usage_at"),
                models.Index(
                    condition=models.Q(("lease_id__isnull", False)), fields=["lease_id"], name="usage_of_lease"
                ),
                models.Index(
                    condition=models.Q(
                        ("cost_usd_micros__gt", 0),
                        ("payment", None),
                        models.Q(("organisation_id", models.F("owner_id")), _negated=True),
                    ),
                    fields=["organisation_id", "endpoint_id", "id"],
                    name="usage_unpaid",
                ),
            ],
            "constraints": [
                models.UniqueConstraint(fields=("gateway_id", "seq"), name="usage_once_per_seq"),
                models.UniqueConstraint(fields=("request_id", "part"), name="usage_once_per_part"),
            ],
        },
    ),
    migrations.CreateModel(
        name="UsageAside",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("gateway_id", models.UUIDField()),
            ("seq", models.PositiveBigIntegerField()),
            ("why", models.CharField(max_length=64)),
            ("row", models.JSONField()),
            ("received_at", models.DateTimeField()),
        ],
        options={
            "verbose_name_plural": "usage set aside",
            "constraints": [models.UniqueConstraint(fields=("gateway_id", "seq"), name="usage_aside_once_per_seq")],
        },
    ),
    migrations.CreateModel(
        name="UsageDay",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("day", models.DateField()),
            ("key_id", models.UUIDField()),
            ("organisation_id", models.UUIDField()),
            ("owner_id", models.UUIDField()),
            ("endpoint_id", models.UUIDField()),
            ("model", models.CharField(max_length=200)),
            ("requests", models.PositiveBigIntegerField()),
            ("failed", models.PositiveBigIntegerField()),
            ("input_tokens", models.PositiveBigIntegerField()),
            ("cached_tokens", models.PositiveBigIntegerField()),
            ("output_tokens", models.PositiveBigIntegerField()),
            ("cost_usd_micros", models.PositiveBigIntegerField()),
        ],
        options={
            "indexes": [
                models.Index(fields=["organisation_id", "day"], name="usage_day_of_caller"),
                models.Index(fields=["owner_id", "day"], name="usage_day_of_owner"),
            ],
            "constraints": [
                models.UniqueConstraint(fields=("day", "key_id", "endpoint_id", "model"), name="one_usage_day")
            ],
        },
    ),
    migrations.CreateModel(
        name="UsageRemainder",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            ("key_id", models.UUIDField()),
            ("endpoint_id", models.UUIDField()),
            ("picos", models.PositiveIntegerField()),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("key_id", "endpoint_id"), name="one_usage_remainder"),
                models.CheckConstraint(condition=models.Q(("picos__lt", 1000000)), name="remainder_below_one_micro"),
            ],
        },
    ),
    migrations.CreateModel(
        name="LeaseUse",
        fields=[
            ("lease_id", models.UUIDField(primary_key=True, serialize=False)),
            ("requests", models.PositiveBigIntegerField(default=0)),
            ("input_tokens", models.PositiveBigIntegerField(default=0)),
            ("output_tokens", models.PositiveBigIntegerField(default=0)),
            ("unreported_input_tokens", models.PositiveBigIntegerField(db_default=0, default=0)),
            ("unreported_output_tokens", models.PositiveBigIntegerField(db_default=0, default=0)),
            (
                "counted_at",
                models.DateTimeField(
                    db_default=django.db.models.functions.datetime.Now(),
                    db_index=True,
                    default=marketplace.foundation.clock.now,
                ),
            ),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("unreported_input_tokens__lte", models.F("input_tokens")),
                        ("unreported_output_tokens__lte", models.F("output_tokens")),
                    ),
                    name="unreported_are_counted",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="LeaseStatement",
        fields=[
            ("lease_id", models.UUIDField(primary_key=True, serialize=False)),
            ("seq", models.PositiveBigIntegerField()),
            ("requests", models.PositiveBigIntegerField()),
            ("without_usage", models.PositiveBigIntegerField()),
            ("input_tokens", models.PositiveBigIntegerField()),
            ("output_tokens", models.PositiveBigIntegerField()),
            ("digest", models.CharField(max_length=66)),
            ("prev_digest", models.CharField(max_length=66)),
            ("signature", models.CharField(max_length=132)),
            ("signer", models.CharField(max_length=42)),
            ("received_at", models.DateTimeField()),
        ],
    ),
)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("billing", "0001_tables"),
        ("nodes", "0001_tables"),
    ]

    replaces = [
        ("jobs", "0001_initial"),
        ("jobs", "0003_payment"),
        ("jobs", "0004_payment_in_dollars"),
        ("jobs", "0005_payment_rules"),
        ("jobs", "0006_escrow_mode"),
        ("jobs", "0007_prices_of_jobs"),
        ("jobs", "0009_serving"),
        ("jobs", "0010_endpoint_keys_and_use"),
        ("jobs", "0011_counts_of_leases"),
        ("jobs", "0012_minutes"),
        ("jobs", "0013_audits"),
        ("jobs", "0014_kind_known"),
        ("jobs", "0015_allow_rolled_back"),
        ("jobs", "0017_move_moments_into_calendar"),
        ("jobs", "0018_moments_within_calendar"),
        ("jobs", "0019_set_aside"),
        ("jobs", "0020_unreported_tokens"),
        ("jobs", "0021_unreported_before"),
        ("jobs", "0022_usage_remainders"),
        ("jobs", "0023_storage_quotas"),
        ("jobs", "0024_condemned_checkpoints"),
        ("jobs", "0025_dated_artifacts"),
        ("jobs", "0026_storage_charges"),
        ("jobs", "0027_providers_of_quotes"),
        ("jobs", "0028_parts_of_artifacts"),
        ("jobs", "0029_count_files"),
    ]

    operations = [TABLES]
