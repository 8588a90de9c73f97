"""People, their organisations, keys and sign-ins, and the site's policy."""

import datetime
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
import marketplace.foundation.ids
from django.conf import settings
from django.db import migrations, models

from marketplace.foundation.many_models import CreateModels

TABLES = CreateModels(
    migrations.CreateModel(
        name="User",
        fields=[
            ("password", models.CharField(max_length=128, verbose_name="password")),
            ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
            (
                "is_superuser",
                models.BooleanField(
                    default=False,
                    help_text="Designates that this user has all permissions without explicitly assigning them.",
                    verbose_name="superuser status",
                ),
            ),
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("email", models.EmailField(max_length=254, unique=True)),
            ("name", models.CharField(blank=True, max_length=120)),
            ("is_active", models.BooleanField(default=True)),
            ("is_staff", models.BooleanField(default=False)),
            ("verified_at", models.DateTimeField(blank=True, null=True)),
            ("second_factor_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ("staff_since", models.DateTimeField(blank=True, editable=False, null=True)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            (
                "groups",
                models.ManyToManyField(
                    blank=True,
                    help_text=(
                        "The groups this user belongs to. A user will get all permissions granted to each of "
                        "their groups."
                    ),
                    related_name="user_set",
                    related_query_name="user",
                    to="auth.group",
                    verbose_name="groups",
                ),
            ),
            (
                "user_permissions",
                models.ManyToManyField(
                    blank=True,
                    help_text="Specific permissions for this user.",
                    related_name="user_set",
                    related_query_name="user",
                    to="auth.permission",
                    verbose_name="user permissions",
                ),
            ),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                    name="user_email_in_lower_case",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="Organisation",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("name", models.CharField(max_length=120)),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            (
                "members",
                models.ManyToManyField(
                    related_name="organisations", through="accounts.Membership", to=settings.AUTH_USER_MODEL
                ),
            ),
        ],
    ),
    migrations.CreateModel(
        name="Membership",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "organisation",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to="accounts.organisation"
                ),
            ),
            (
                "user",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to=settings.AUTH_USER_MODEL
                ),
            ),
            (
                "role",
                models.CharField(
                    choices=[("owner", "Owner"), ("member", "Member"), ("billing", "Billing")], max_length=16
                ),
            ),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
        options={
            "constraints": [
                models.UniqueConstraint(fields=("organisation", "user"), name="one_membership_per_organisation"),
                models.CheckConstraint(
                    condition=models.Q(("role__in", ["owner", "member", "billing"])), name="membership_role_known"
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="Invitation",
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
                    blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to="accounts.organisation"
                ),
            ),
            ("email", models.EmailField(max_length=254)),
            (
                "role",
                models.CharField(
                    choices=[("owner", "Owner"), ("member", "Member"), ("billing", "Billing")],
                    default="member",
                    max_length=16,
                ),
            ),
            ("token_hash", models.CharField(max_length=64, unique=True)),
            (
                "invited_by",
                models.ForeignKey(
                    blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL
                ),
            ),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("expires_at", models.DateTimeField()),
            ("accepted_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("role__in", ["owner", "member", "billing"])), name="invitation_role_known"
                ),
                models.CheckConstraint(
                    condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                    name="invitation_email_in_lower_case",
                ),
            ],
        },
    ),
    migrations.CreateModel(
        name="PendingSignup",
        fields=[
            (
                "id",
                models.UUIDField(
                    default=marketplace.foundation.ids.new_id, editable=False, primary_key=True, serialize=False
                ),
            ),
            ("email", models.EmailField(max_length=254)),
            ("password", models.CharField(max_length=128)),
            ("name", models.CharField(blank=True, max_length=120)),
            ("organisation_name", models.CharField(blank=True, max_length=120)),
            ("invitation_hash", models.CharField(blank=True, max_length=64)),
            ("token_hash", models.CharField(max_length=64, unique=True)),
            ("expires_at", models.DateTimeField(db_index=True)),
        ],
        options={
            "constraints": [
                models.CheckConstraint(
                    condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                    name="signup_email_in_lower_case",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="ApiKey",
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
                    on_delete=django.db.models.deletion.CASCADE, related_name="api_keys", to="accounts.organisation"
                ),
            ),
            (
                "user",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="api_keys", to=settings.AUTH_USER_MODEL
                ),
            ),
            ("name", models.CharField(max_length=120)),
            ("prefix", models.CharField(max_length=16, unique=True)),
            ("key_hash", models.CharField(max_length=64)),
            (
                "scopes",
                django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), size=None),
            ),
            ("created_at", models.DateTimeField(auto_now_add=True)),
            ("expires_at", models.DateTimeField(blank=True, null=True)),
            ("revoked_at", models.DateTimeField(blank=True, null=True)),
            ("last_used_at", models.DateTimeField(blank=True, null=True)),
        ],
        options={
            "constraints": [
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
                    name="api_key_expires_within_calendar",
                )
            ],
        },
    ),
    migrations.CreateModel(
        name="SigninLimit",
        fields=[
            ("key", models.CharField(max_length=80, primary_key=True, serialize=False)),
            ("failures", models.PositiveIntegerField(default=0)),
            ("locks", models.PositiveIntegerField(default=0)),
            ("began_at", models.DateTimeField(db_index=True)),
            ("locked_until", models.DateTimeField(blank=True, null=True)),
        ],
    ),
    migrations.CreateModel(
        name="SigninAddress",
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            (
                "user",
                models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name="signin_addresses",
                    to=settings.AUTH_USER_MODEL,
                ),
            ),
            ("address_hash", models.CharField(max_length=64)),
            ("signed_in_at", models.DateTimeField(db_index=True)),
        ],
        options={
            "constraints": [models.UniqueConstraint(fields=("user", "address_hash"), name="one_signin_address_a_user")],
        },
    ),
    migrations.CreateModel(
        name="SecondFactor",
        fields=[
            (
                "user",
                models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE,
                    primary_key=True,
                    related_name="second_factor",
                    serialize=False,
                    to=settings.AUTH_USER_MODEL,
                ),
            ),
            ("sealed_secret", models.CharField(max_length=300)),
            ("last_step", models.BigIntegerField()),
            (
                "recovery_hashes",
                django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64), size=None),
            ),
            ("created_at", models.DateTimeField(auto_now_add=True)),
        ],
    ),
    migrations.CreateModel(
        name="SitePolicy",
        fields=[
            ("id", models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
            (
                "signup",
                models.CharField(
                    choices=[("open", "Open"), ("invitation", "Invitation"), ("closed", "Closed")],
                    default="invitation",
                    max_length=16,
                ),
            ),
        ],
        options={
            "verbose_name_plural": "site policy",
            "constraints": [
                models.CheckConstraint(condition=models.Q(("id", 1)), name="one_site_policy"),
                models.CheckConstraint(
                    condition=models.Q(("signup__in", ["open", "invitation", "closed"])), name="signup_policy_known"
                ),
            ],
        },
    ),
)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    replaces = [
        ("accounts", "0001_initial"),
        ("accounts", "0002_move_moments_into_calendar"),
        ("accounts", "0003_moments_within_calendar"),
        ("accounts", "0004_signin_limits"),
        ("accounts", "0005_signin_addresses"),
        ("accounts", "0006_second_factor"),
        ("accounts", "0007_verified_addresses"),
        ("accounts", "0008_existing_accounts_verified"),
        ("accounts", "0009_staff_since"),
    ]

    operations = [TABLES]
