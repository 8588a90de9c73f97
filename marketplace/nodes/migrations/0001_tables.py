"""Nodes with what they offer, their devices, checks and links, and the agent's releases."""

import datetime
import django.db.models.deletion
import marketplace.foundation.ids
from django.db import migrations, models

from marketplace.foundation.many_models import CreateModels

TABLES = CreateModels(
    migrations.CreateModel(
        name="Provider",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "organisation",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.PROTECT, related_name="provider", to="accounts.organisation"
                ),
            ),
            ("display_name", models.CharField(max_length=120)),
            ("contact_email", models.EmailField(blank=True, max_length=254)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
    ),
    migrations.CreateModel(
        name="EnrolmentToken",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "provider",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="enrolment_tokens", to="nodes.provider"
                ),
            ),
            ("prefix", models.CharField(max_length=12)),
            ("token_hash", models.CharField(max_length=64, unique=True)),
            ("note", models.CharField(blank=True, max_length=120)),
            ("created_by", models.CharField(max_length=120)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("expires_at", models.DateTimeField()),
            ("used_at", models.DateTimeField(blank=True, null=True)),
            (
                "node",
                models.OneToOneField(
                    blank=True,
                    null=True,
                    on_delete=django.db.models.deletion.SET_NULL,
                    related_name="token",
                    to="nodes.node",
                ),
            ),
        ],
    ),
    migrations.CreateModel(
        name="Node",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "provider",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.PROTECT, related_name="nodes", to="nodes.provider"
                ),
            ),
            ("name", models.CharField(max_length=64)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("pending", "Pending"),
                        ("online", "Online"),
                        ("offline", "Offline"),
                        ("draining", "Draining"),
                        ("quarantined", "Quarantined"),
                        ("retired", "Retired"),
                    ],
                    default="pending",
                    max_length=16,
                ),
            ),
            ("transport_public_key", models.CharField(max_length=64, unique=True)),
            ("receipt_address", models.CharField(max_length=42, unique=True)),
            ("executor", models.CharField(max_length=16)),
            ("allows_strangers", models.BooleanField(db_default=False, default=False)),
            ("agent_version", models.CharField(max_length=40)),
            ("protocol", models.PositiveSmallIntegerField()),
            ("facts", models.JSONField(default=dict)),
            ("region", models.CharField(default="unknown", max_length=32)),
            ("fabric", models.CharField(blank=True, max_length=64)),
            ("fabric_address", models.CharField(blank=True, max_length=64)),
            ("fabric_key", models.CharField(blank=True, max_length=64)),
            ("memory_mib", models.PositiveBigIntegerField()),
            ("cpu_count", models.PositiveIntegerField()),
            ("boot_id", models.UUIDField(blank=True, null=True)),
            ("synced_ms", models.BigIntegerField(default=0)),
            ("changed_ms", models.BigIntegerField(db_default=0, default=0)),
            ("last_seen_at", models.DateTimeField(blank=True, null=True)),
            ("measured_at", models.DateTimeField(blank=True, null=True)),
            ("drain_requested_at", models.DateTimeField(blank=True, null=True)),
            ("drain_reason", models.CharField(blank=True, max_length=200)),
            ("schedule", models.JSONField(default=dict)),
            ("ghosts_killed", models.PositiveBigIntegerField(default=0)),
            ("failures", models.PositiveIntegerField(default=0)),
            ("successes", models.PositiveIntegerField(default=0)),
            ("wanted_check_id", models.UUIDField(blank=True, null=True)),
            ("wanted_probe_id", models.UUIDField(blank=True, null=True)),
            ("next_check_at", models.DateTimeField(blank=True, null=True)),
            ("verified_at", models.DateTimeField(blank=True, null=True)),
            ("suspended_at", models.DateTimeField(blank=True, null=True)),
            ("checks_passed", models.PositiveIntegerField(default=0)),
            ("checks_failed", models.PositiveIntegerField(default=0)),
            ("checks_failed_in_row", models.PositiveIntegerField(default=0)),
            ("update_mode", models.CharField(default="none", max_length=8)),
            ("wanted_version", models.CharField(blank=True, max_length=40)),
            ("agent_version_at", models.DateTimeField(blank=True, null=True)),
            ("rolled_back_version", models.CharField(blank=True, max_length=40)),
            ("rolled_back_reason", models.CharField(blank=True, max_length=300)),
            ("rolled_back_at", models.DateTimeField(blank=True, null=True)),
            ("enrolled_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "indexes": [models.Index(fields=["state", "last_seen_at"], name="node_liveness")],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(
                        ("state__in", ["pending", "online", "offline", "draining", "quarantined", "retired"])
                    ),
                    name="node_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("rolled_back_at", None),
                        models.Q(
                            ("rolled_back_at__gte", datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)),
                            (
                                "rolled_back_at__lte",
                                datetime.datetime(2999, 12, 31, 23, 59, 59, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        _connector="OR",
                    ),
                    name="node_rollback_within_calendar",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Check",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "node",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="checks", to="nodes.node"),
            ),
            (
                "state",
                models.CharField(
                    choices=[
                        ("demanded", "Demanded"),
                        ("begun", "Begun"),
                        ("committed", "Committed"),
                        ("recalling", "Recalling"),
                        ("passed", "Passed"),
                        ("failed", "Failed"),
                        ("withdrawn", "Withdrawn"),
                    ],
                    default="demanded",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=64)),
            ("is_enforced", models.BooleanField(default=False)),
            ("seed", models.CharField(max_length=64)),
            ("plan", models.JSONField(default=dict)),
            ("roots", models.JSONField(default=dict)),
            ("openings", models.JSONField(default=dict)),
            ("revealed", models.JSONField(default=dict)),
            ("recalls", models.JSONField(default=list)),
            ("findings", models.JSONField(default=list)),
            ("demanded_at", models.DateTimeField()),
            ("begun_at", models.DateTimeField(blank=True, null=True)),
            ("committed_at", models.DateTimeField(blank=True, null=True)),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "ordering": ["-demanded_at"],
            "indexes": [
                models.Index(fields=["node", "-demanded_at"], name="check_of_node"),
                models.Index(
                    condition=models.Q(("state__in", ("demanded", "begun", "committed", "recalling"))),
                    fields=["demanded_at"],
                    name="check_live",
                ),
            ],
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("state__in", ("demanded", "begun", "committed", "recalling"))),
                    fields=("node",),
                    name="one_live_check_per_node",
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("state__in", ["demanded", "begun", "committed", "recalling", "passed", "failed", "withdrawn"])
                    ),
                    name="check_state_known",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Device",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "node",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="devices", to="nodes.node"),
            ),
            ("uuid", models.CharField(max_length=96)),
            ("index", models.PositiveSmallIntegerField()),
            ("kind", models.CharField(choices=[("gpu", "gpu"), ("cpu", "cpu")], max_length=8)),
            ("model", models.CharField(max_length=120)),
            ("memory_mib", models.PositiveBigIntegerField()),
            ("details", models.JSONField(default=dict)),
            ("flops_per_second", models.JSONField(default=dict)),
            ("claimed_flops_per_second", models.JSONField(default=dict)),
            ("shown_flops_per_second", models.FloatField(blank=True, null=True)),
            ("memory_bytes_per_second", models.FloatField(default=0)),
            ("is_healthy", models.BooleanField(default=True)),
            ("fault", models.CharField(blank=True, max_length=200)),
            ("is_claimed", models.BooleanField(db_default=True, default=True)),
        ],
        options={
            "ordering": ["node", "index"],
            "constraints": [
                models.UniqueConstraint(fields=("node", "uuid"), name="device_once_per_node"),
                models.UniqueConstraint(
                    condition=models.Q(("is_claimed", True), ("kind", "gpu")), fields=("uuid",), name="gpu_claimed_once"
                ),
                models.CheckConstraint(
                    condition=models.Q(("is_healthy", False), ("is_claimed", True), _connector="OR"),
                    name="healthy_device_claimed",
                ),
                models.CheckConstraint(condition=models.Q(("memory_mib__gt", 0)), name="device_has_memory"),
                models.CheckConstraint(condition=models.Q(("kind__in", ["gpu", "cpu"])), name="device_kind_known"),
            ],
        },
    ),
    migrations.CreateModel(
        name="FabricLink",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "a",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="links_as_a", to="nodes.node"
                ),
            ),
            (
                "b",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="links_as_b", to="nodes.node"
                ),
            ),
            ("is_reachable", models.BooleanField(default=False)),
            ("round_trip_us", models.PositiveIntegerField(blank=True, null=True)),
            ("bandwidth_bytes_per_second", models.PositiveBigIntegerField(blank=True, null=True)),
            ("measured_at", models.DateTimeField(blank=True, null=True)),
            ("why", models.CharField(blank=True, max_length=700)),
            ("failures_in_row", models.PositiveIntegerField(default=0)),
            ("next_probe_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("a", "b"), name="one_link_per_pair"),
                models.CheckConstraint(condition=models.Q(("a__lt", models.F("b"))), name="link_in_order"),
                models.CheckConstraint(
                    condition=models.Q(
                        ("is_reachable", False),
                        models.Q(
                            ("bandwidth_bytes_per_second__isnull", False),
                            ("measured_at__isnull", False),
                            ("round_trip_us__isnull", False),
                        ),
                        _connector="OR",
                    ),
                    name="reachable_link_has_figures",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="LinkProbe",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "link",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="probes", to="nodes.fabriclink"
                ),
            ),
            (
                "state",
                models.CharField(
                    choices=[
                        ("demanded", "Demanded"),
                        ("measured", "Measured"),
                        ("failed", "Failed"),
                        ("withdrawn", "Withdrawn"),
                    ],
                    default="demanded",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=64)),
            (
                "listener",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="nodes.node"),
            ),
            ("secret", models.CharField(blank=True, max_length=64)),
            ("ports", models.JSONField(default=dict)),
            ("reports", models.JSONField(default=dict)),
            ("demanded_at", models.DateTimeField()),
            ("ended_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "indexes": [
                models.Index(condition=models.Q(("state", "demanded")), fields=["demanded_at"], name="link_probe_live")
            ],
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("state", "demanded")), fields=("link",), name="one_live_probe_per_link"
                ),
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["demanded", "measured", "failed", "withdrawn"])),
                    name="link_probe_state_known",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Metric",
        fields=[
            ("id", models.BigAutoField(primary_key=True, serialize=False)),
            (
                "node",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="metrics", to="nodes.node"),
            ),
            ("lease_id", models.UUIDField(blank=True, null=True)),
            ("at", models.DateTimeField()),
            ("seconds", models.PositiveSmallIntegerField(choices=[(60, "minute"), (3600, "hour")])),
            ("values", models.JSONField()),
        ],
        options={
            "indexes": [models.Index(fields=["seconds", "at"], name="metric_age")],
            "constraints": [
                models.UniqueConstraint(
                    fields=("node", "lease_id", "seconds", "at"), name="metric_once", nulls_distinct=False
                ),
                models.CheckConstraint(condition=models.Q(("seconds__in", [60, 3600])), name="metric_minute_or_hour"),
            ],
        },
    ),
    migrations.CreateModel(
        name="Offer",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            (
                "node",
                models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="offers", to="nodes.node"),
            ),
            ("price_usd_micros_per_device_hour", models.PositiveBigIntegerField()),
            ("seconds_min", models.PositiveIntegerField(default=60)),
            ("seconds_max", models.PositiveIntegerField(default=604800)),
            ("region", models.CharField(default="unknown", max_length=32)),
            ("available_until", models.DateTimeField(blank=True, null=True)),
            ("is_open", models.BooleanField(default=True)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(
                    condition=models.Q(("is_open", True)), fields=("node",), name="one_open_offer_per_node"
                ),
                models.CheckConstraint(
                    condition=models.Q(("price_usd_micros_per_device_hour__gt", 0)), name="offer_has_a_price"
                ),
                models.CheckConstraint(
                    condition=models.Q(("seconds_max__gte", models.F("seconds_min"))), name="offer_duration_makes_sense"
                ),
                models.CheckConstraint(
                    condition=models.Q(
                        ("available_until", None),
                        models.Q(
                            ("available_until__gte", datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)),
                            (
                                "available_until__lte",
                                datetime.datetime(2999, 12, 31, 23, 59, 59, tzinfo=datetime.timezone.utc),
                            ),
                        ),
                        _connector="OR",
                    ),
                    name="offer_ends_within_calendar",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="AgentRelease",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("version", models.CharField(max_length=40, unique=True)),
            ("wheel", models.CharField(max_length=120)),
            ("sha256", models.CharField(max_length=64)),
            (
                "state",
                models.CharField(
                    choices=[
                        ("rolling", "Rolling"),
                        ("paused", "Paused"),
                        ("halted", "Halted"),
                        ("complete", "Complete"),
                        ("withdrawn", "Withdrawn"),
                    ],
                    default="rolling",
                    max_length=16,
                ),
            ),
            ("reason", models.CharField(blank=True, max_length=200)),
            ("share", models.FloatField(default=0)),
            ("stage_at", models.DateTimeField()),
            ("forgiven", models.PositiveIntegerField(default=0)),
            ("rollback_from", models.CharField(blank=True, max_length=40)),
            ("published_at", models.DateTimeField()),
        ],
        options={
            "ordering": ["-published_at"],
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("state__in", ["rolling", "paused", "halted", "complete", "withdrawn"])),
                    name="release_state_known",
                ),
                models.CheckConstraint(
                    condition=models.Q(("share__gte", 0), ("share__lte", 1)), name="release_share_is_one"
                ),
            ],
        },
    ),
)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
    ]

    replaces = [
        ("nodes", "0001_initial"),
        ("nodes", "0002_newest_sync"),
        ("nodes", "0003_checks"),
        ("nodes", "0004_care"),
        ("nodes", "0005_fabric_links"),
        ("nodes", "0006_fabric_key"),
        ("nodes", "0007_releases"),
        ("nodes", "0009_move_moments_into_calendar"),
        ("nodes", "0010_moments_within_calendar"),
        ("nodes", "0011_newest_change"),
        ("nodes", "0012_allows_strangers"),
        ("nodes", "0013_devices_claimed"),
        ("nodes", "0014_gpu_claimed_once"),
    ]

    operations = [TABLES]
