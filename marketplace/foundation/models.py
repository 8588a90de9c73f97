"""Tables that every app writes to: events of state changes, answers to repeated requests, the outbox."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q

from marketplace.foundation import clock
from marketplace.foundation.ids import new_id


class Event(models.Model):
    """One move of one state machine; written by `advance` in the transaction of the move, never changed."""

    id = models.BigAutoField(primary_key=True)
    subject_kind = models.CharField(max_length=32)
    subject_id = models.UUIDField()
    from_state = models.CharField(max_length=32)
    to_state = models.CharField(max_length=32)
    reason = models.CharField(max_length=64, blank=True)
    actor = models.CharField(max_length=120, default="system")
    data: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True, encoder=DjangoJSONEncoder)
    created_at = models.DateTimeField(auto_now_add=True)
    row_digest = models.CharField(
        max_length=64, default="", db_default="", editable=False
    )  # of all but the actor; by a trigger
    actor_digest = models.CharField(max_length=64, default="", db_default="", editable=False)  # the same of the actor

    class Meta:
        indexes = [models.Index(fields=["subject_kind", "subject_id", "id"], name="event_subject")]

    def __str__(self) -> str:
        return f"{self.subject_kind} {self.subject_id}: {self.from_state} -> {self.to_state} ({self.reason})"


class EventSeal(models.Model):
    """A link of the hash chain over all events: so many, up to this one, said this when they were sealed."""

    last_id = models.BigIntegerField(primary_key=True)  # it covers the events after the seal before, up to this one
    events = models.PositiveIntegerField()
    digest = models.CharField(max_length=64)
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64, unique=True)
    sealed_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"{self.events} events up to {self.last_id}"


class IdempotencyKey(models.Model):
    """The answer to a request, kept so that a repeat gets the same one and has no second effect.

    The answer is encrypted: it may hold an API key or an enrolment token, which the database must never hold in clear.
    """

    class State(models.TextChoices):
        IN_PROGRESS = "in_progress"
        DONE = "done"

    id = models.BigAutoField(primary_key=True)
    actor = models.CharField(max_length=120)
    key = models.CharField(max_length=200)
    route = models.CharField(max_length=200)
    request_hash = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=State.choices, default=State.IN_PROGRESS)
    # What the first caller might do; null, of rows from before it was kept, is more than anybody may.
    scopes: ArrayField[Any, Any] = ArrayField(models.CharField(max_length=32), null=True)
    status_code = models.PositiveSmallIntegerField(null=True)
    response_sealed = models.TextField(blank=True)
    started_at = models.DateTimeField(default=clock.now)  # who took it, since when: moves when a dead one is taken over
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["actor", "key"], name="idempotency_once_per_actor"),
            models.CheckConstraint(condition=Q(state__in=["in_progress", "done"]), name="idempotency_state_known"),
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.key}"


class OutboxMessage(models.Model):
    """One call to the outside world, written in the transaction that decided it and made after its commit."""

    class State(models.TextChoices):
        WAITING = "waiting"
        DONE = "done"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=64)
    business_key = models.CharField(max_length=200, unique=True)
    payload: models.JSONField[Any, Any] = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(default=clock.now)  # not before; moves on with every failure
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_owner = models.CharField(max_length=120, blank=True)
    external_id = models.CharField(max_length=200, blank=True)
    last_error = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["next_at"], condition=Q(state="waiting"), name="outbox_due")]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=["waiting", "done", "failed"]), name="outbox_state_known")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.business_key} ({self.state})"
