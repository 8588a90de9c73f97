"""Who may call an endpoint, what they used, and what was paid for it.

EndpointKey    a key for programs that call models; its text is shown once
KeySlice       what one gateway may let one key spend until its grant expires
UsageRecord    one request, or the part of it that one replica answered, as a gateway counted it
UsageAside     what a gateway counted and nobody can be charged for
UsageDay       the sums of a day: these stay when the records have gone
UsageRemainder the part of a micro-dollar that a key's requests to an endpoint have cost and nobody was charged
UsagePayment   what a caller paid an endpoint of another organisation, for many requests at once
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from marketplace.foundation.moments import within_calendar

PICOS_PER_MICRO = 1_000_000  # pico-dollars: what one token costs at a price of one micro-dollar for a million


class EndpointKey(models.Model):
    """A key for endpoints. Of its text the database holds the SHA-256 and the first characters."""

    class Kind(models.TextChoices):
        """session: made for a page that somebody has open, and gone soon after."""

        ENDPOINT = "endpoint"
        SESSION = "session"

    class Period(models.TextChoices):
        """Over which time the budget counts; months are the calendar's, in UTC."""

        TOTAL = "total"
        MONTH = "month"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="endpoint_keys")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.ENDPOINT)
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16)
    key_hash = models.CharField(max_length=64, unique=True)
    # None: every endpoint of the organisation, and every public one
    endpoint_ids: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(null=True, blank=True)
    in_flight_max = models.PositiveIntegerField(null=True, blank=True)
    budget_usd_micros = models.PositiveBigIntegerField(null=True, blank=True)
    budget_period = models.CharField(max_length=8, choices=Period.choices, default=Period.TOTAL)
    spent_usd_micros = models.PositiveBigIntegerField(default=0)  # in all
    spent_month_usd_micros = models.PositiveBigIntegerField(default=0)  # in spent_month
    spent_month = models.DateField(null=True, blank=True)  # its first day
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["endpoint", "session"]), name="endpoint_key_kind_known"),
            models.CheckConstraint(condition=Q(budget_period__in=["total", "month"]), name="endpoint_key_period_known"),
            models.CheckConstraint(
                condition=~Q(kind="session") | Q(expires_at__isnull=False), name="session_key_expires"
            ),
            within_calendar("expires_at", name="endpoint_key_expires_within_calendar"),
        ]
        indexes = [models.Index(fields=["expires_at"], condition=Q(kind="session"), name="session_key_expiry")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"


class KeySlice(models.Model):
    """What one gateway may let one key spend, until its grant expires; no other gateway is given the same money."""

    id = models.BigAutoField(primary_key=True)
    key = models.ForeignKey(EndpointKey, on_delete=models.CASCADE, related_name="slices")
    organisation_id = models.UUIDField()
    gateway_id = models.UUIDField()
    budget_usd_micros = models.PositiveBigIntegerField(default=0)  # of the key's budget
    foreign_usd_micros = models.PositiveBigIntegerField(default=0)  # of the organisation's balance
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "gateway_id"], name="one_slice_a_key_and_gateway")]
        indexes = [
            models.Index(fields=["gateway_id", "expires_at"], name="slice_of_gateway"),
            models.Index(fields=["organisation_id", "expires_at"], name="slice_of_organisation"),
        ]

    def __str__(self) -> str:
        return f"slice of {self.key_id} at {self.gateway_id}"


class UsagePayment(models.Model):
    """What one caller paid one endpoint of another organisation, for so many records; its id groups the transfers."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    payer_id = models.UUIDField(db_index=True)
    owner_id = models.UUIDField(db_index=True)  # of the endpoint
    endpoint_id = models.UUIDField()
    records = models.PositiveIntegerField()
    charged_usd_micros = models.PositiveBigIntegerField()
    fee_usd_micros = models.PositiveBigIntegerField()
    paid_usd_micros = models.PositiveBigIntegerField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(charged_usd_micros=F("fee_usd_micros") + F("paid_usd_micros"), charged_usd_micros__gt=0),
                name="usage_payment_splits_its_charge",
            ),
            models.CheckConstraint(condition=~Q(payer_id=F("owner_id")), name="usage_payment_between_two"),
        ]

    def __str__(self) -> str:
        return f"{self.payer_id} paid {self.owner_id} {self.charged_usd_micros} for {self.records} records"


class UsageRecord(models.Model):
    """One request, or the part of it that one replica answered. Ids are facts of then, not references."""

    id = models.BigAutoField(primary_key=True)
    gateway_id = models.UUIDField()
    seq = models.PositiveBigIntegerField()
    request_id = models.UUIDField()
    part = models.PositiveIntegerField()
    key_id = models.UUIDField()
    organisation_id = models.UUIDField()  # who called
    owner_id = models.UUIDField()  # whose endpoint it is
    endpoint_id = models.UUIDField()
    version = models.PositiveIntegerField()
    lease_id = models.UUIDField(null=True, blank=True)
    model = models.CharField(max_length=200)
    kind = models.CharField(max_length=16)
    status = models.CharField(max_length=16)
    input_tokens = models.PositiveBigIntegerField()
    cached_tokens = models.PositiveBigIntegerField()
    output_tokens = models.PositiveBigIntegerField()
    cost_usd_micros = models.PositiveBigIntegerField()
    queue_ms = models.PositiveBigIntegerField(default=0)
    first_token_ms = models.PositiveBigIntegerField(null=True, blank=True)
    total_ms = models.PositiveBigIntegerField(default=0)
    at = models.DateTimeField()
    received_at = models.DateTimeField()
    payment = models.ForeignKey(UsagePayment, null=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["gateway_id", "seq"], name="usage_once_per_seq"),
            models.UniqueConstraint(fields=["request_id", "part"], name="usage_once_per_part"),
        ]
        indexes = [
            models.Index(fields=["at"], name="usage_at"),
            models.Index(fields=["lease_id"], condition=Q(lease_id__isnull=False), name="usage_of_lease"),
            models.Index(
                fields=["organisation_id", "endpoint_id", "id"],
                condition=Q(payment=None, cost_usd_micros__gt=0) & ~Q(organisation_id=F("owner_id")),
                name="usage_unpaid",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.request_id}/{self.part}: {self.input_tokens} + {self.output_tokens} tokens"


class UsageAside(models.Model):
    """What a gateway counted and nobody can be charged for: kept for people, with the reason."""

    id = models.BigAutoField(primary_key=True)
    gateway_id = models.UUIDField()
    seq = models.PositiveBigIntegerField()
    why = models.CharField(max_length=64)
    row: models.JSONField[Any, Any] = models.JSONField()
    received_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "usage set aside"
        constraints = [models.UniqueConstraint(fields=["gateway_id", "seq"], name="usage_aside_once_per_seq")]

    def __str__(self) -> str:
        return f"{self.gateway_id} #{self.seq}: {self.why}"


class UsageDay(models.Model):
    """The use of one key at one endpoint on one day, in UTC, under one model name."""

    id = models.BigAutoField(primary_key=True)
    day = models.DateField()
    key_id = models.UUIDField()
    organisation_id = models.UUIDField()
    owner_id = models.UUIDField()
    endpoint_id = models.UUIDField()
    model = models.CharField(max_length=200)
    requests = models.PositiveBigIntegerField()
    failed = models.PositiveBigIntegerField()
    input_tokens = models.PositiveBigIntegerField()
    cached_tokens = models.PositiveBigIntegerField()
    output_tokens = models.PositiveBigIntegerField()
    cost_usd_micros = models.PositiveBigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["day", "key_id", "endpoint_id", "model"], name="one_usage_day"),
        ]
        indexes = [
            models.Index(fields=["organisation_id", "day"], name="usage_day_of_caller"),
            models.Index(fields=["owner_id", "day"], name="usage_day_of_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.model}: {self.requests} requests"


class UsageRemainder(models.Model):
    """What a key's requests to an endpoint have cost beyond the whole micro-dollars in the records."""

    id = models.BigAutoField(primary_key=True)
    key_id = models.UUIDField()
    endpoint_id = models.UUIDField()
    picos = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key_id", "endpoint_id"], name="one_usage_remainder"),
            models.CheckConstraint(condition=Q(picos__lt=PICOS_PER_MICRO), name="remainder_below_one_micro"),
        ]

    def __str__(self) -> str:
        return f"key {self.key_id} at endpoint {self.endpoint_id}: {self.picos} pico-dollars"


class LeaseUse(models.Model):
    """What the gateways counted of one lease, since it began; stays when the records have gone."""

    lease_id = models.UUIDField(primary_key=True)
    requests = models.PositiveBigIntegerField(default=0)  # that its replica was given
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    # Of these, the tokens of answers for which no engine's count came: cut off, or of an engine that reports none
    unreported_input_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    unreported_output_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    counted_at = models.DateTimeField(default=clock.now, db_default=Now(), db_index=True)  # the newest of it came in

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(unreported_input_tokens__lte=F("input_tokens"))
                & Q(unreported_output_tokens__lte=F("output_tokens")),
                name="unreported_are_counted",
            ),
        ]

    def __str__(self) -> str:
        return f"lease {self.lease_id}: {self.requests} requests by the gateways' count"


class LeaseStatement(models.Model):
    """What the agent signed that it counted of one lease: the newest, which is cumulative."""

    lease_id = models.UUIDField(primary_key=True)
    seq = models.PositiveBigIntegerField()
    requests = models.PositiveBigIntegerField()
    without_usage = models.PositiveBigIntegerField()
    input_tokens = models.PositiveBigIntegerField()
    output_tokens = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=66)
    prev_digest = models.CharField(max_length=66)
    signature = models.CharField(max_length=132)
    signer = models.CharField(max_length=42)
    received_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"lease {self.lease_id}: {self.requests} requests by its agent's count"
