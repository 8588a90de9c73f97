"""Events and their seals, idempotency keys, and the outbox."""

import django.contrib.postgres.fields
import django.core.serializers.json
import marketplace.foundation.clock
import marketplace.foundation.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    replaces = [
        ("foundation", "0001_initial"),
        ("foundation", "0003_idempotency_scopes"),
        ("foundation", "0004_event_seals"),
    ]

    operations = [
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("subject_kind", models.CharField(max_length=32)),
                ("subject_id", models.UUIDField()),
                ("from_state", models.CharField(max_length=32)),
                ("to_state", models.CharField(max_length=32)),
                ("reason", models.CharField(blank=True, max_length=64)),
                ("actor", models.CharField(default="system", max_length=120)),
                (
                    "data",
                    models.JSONField(blank=True, default=dict, encoder=django.core.serializers.json.DjangoJSONEncoder),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("row_digest", models.CharField(db_default="", default="", editable=False, max_length=64)),
                ("actor_digest", models.CharField(db_default="", default="", editable=False, max_length=64)),
            ],
            options={
                "indexes": [models.Index(fields=["subject_kind", "subject_id", "id"], name="event_subject")],
            },
        ),
        migrations.CreateModel(
            name="EventSeal",
            fields=[
                ("last_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("events", models.PositiveIntegerField()),
                ("digest", models.CharField(max_length=64)),
                ("prev_hash", models.CharField(max_length=64)),
                ("hash", models.CharField(max_length=64, unique=True)),
                ("sealed_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
            ],
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("actor", models.CharField(max_length=120)),
                ("key", models.CharField(max_length=200)),
                ("route", models.CharField(max_length=200)),
                ("request_hash", models.CharField(max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[("in_progress", "In Progress"), ("done", "Done")], default="in_progress", max_length=16
                    ),
                ),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=32), null=True, size=None
                    ),
                ),
                ("status_code", models.PositiveSmallIntegerField(null=True)),
                ("response_sealed", models.TextField(blank=True)),
                ("started_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("actor", "key"), name="idempotency_once_per_actor"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["in_progress", "done"])), name="idempotency_state_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("kind", models.CharField(max_length=64)),
                ("business_key", models.CharField(max_length=200, unique=True)),
                ("payload", models.JSONField(default=dict, encoder=django.core.serializers.json.DjangoJSONEncoder)),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("done", "Done"), ("failed", "Failed")],
                        default="waiting",
                        max_length=16,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("next_at", models.DateTimeField(default=marketplace.foundation.clock.now)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("lease_owner", models.CharField(blank=True, max_length=120)),
                ("external_id", models.CharField(blank=True, max_length=200)),
                ("last_error", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "indexes": [
                    models.Index(condition=models.Q(("state", "waiting")), fields=["next_at"], name="outbox_due")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "done", "failed"])), name="outbox_state_known"
                    )
                ],
            },
        ),
    ]
