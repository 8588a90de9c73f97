"""What a serving job has beyond a job: its endpoint, the versions of it, and its replicas."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from jobs.models.demand import Job
from jobs.models.leases import Attempt
from jobs.states import (
    REPLICA_LIVE,
    REPLICA_MACHINE,
    ROLLED_BACK_FORMERLY,
    VERSION_MACHINE,
    ReplicaState,
    VersionState,
)
from marketplace.accounts.models import Organisation
from marketplace.foundation.ids import new_id

PERCENT_WHOLE = 100


class Endpoint(models.Model):
    """A served model's address: what callers name as `model`, and how many replicas should answer."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="endpoint")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="endpoints")
    model = models.CharField(max_length=96)
    is_open = models.BooleanField(default=True)  # until its job ends: the name is taken
    desired = models.PositiveSmallIntegerField(default=0)  # replicas, of all versions
    desired_why = models.CharField(max_length=200, blank=True)  # for people
    wanted_at = models.DateTimeField(null=True, blank=True)  # the last request
    # Its owner wants the version before the newest again.
    is_rollback_requested = models.BooleanField(default=False, db_column="take_back")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "model"], condition=Q(is_open=True), name="one_open_endpoint_a_name"
            ),
        ]

    def __str__(self) -> str:
        return self.model


class EndpointVersion(models.Model):
    """One deployed spec of an endpoint, and its share of the requests in percent."""

    STATE_MACHINE = VERSION_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    spec: models.JSONField[Any, Any] = models.JSONField()  # canonical
    input_artifact = models.ForeignKey("Artifact", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=16, choices=VersionState.choices, default=VersionState.STARTING)
    share = models.PositiveSmallIntegerField(default=0)
    reason = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    stepped_at = models.DateTimeField(null=True, blank=True)  # its share was changed last
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["endpoint", "number"]
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "number"], name="versions_are_numbered"),
            models.CheckConstraint(condition=Q(share__lte=PERCENT_WHOLE), name="version_share_is_a_percentage"),
            models.CheckConstraint(
                condition=Q(state__in=[*VersionState.values, ROLLED_BACK_FORMERLY]), name="version_state_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.endpoint} v{self.number} ({self.state})"


class Replica(models.Model):
    """One attempt behind an endpoint."""

    STATE_MACHINE = REPLICA_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="replicas")
    version = models.ForeignKey(EndpointVersion, on_delete=models.PROTECT, related_name="replicas")
    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, related_name="replica")
    is_on_demand = models.BooleanField(default=False)  # on a node that promises to stay
    state = models.CharField(max_length=16, choices=ReplicaState.choices, default=ReplicaState.STARTING)
    reason = models.CharField(max_length=64, blank=True)  # why it drains, or went
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)  # what its engine announced
    load: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)  # the newest report of the gateways
    created_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True)  # a gateway had it as ready: so far it is paid
    draining_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ReplicaState.values), name="replica_state_known"),
        ]
        indexes = [
            models.Index(fields=["endpoint"], condition=Q(state__in=sorted(REPLICA_LIVE)), name="replica_live"),
        ]

    def __str__(self) -> str:
        return f"replica of {self.endpoint} ({self.state})"


class Gateway(models.Model):
    """One gateway process, by its last report; `usage_seq`: everything it counted up to here is in the database."""

    id = models.UUIDField(primary_key=True, editable=False)
    boot_id = models.UUIDField()
    url = models.CharField(max_length=300, blank=True)
    public_key = models.CharField(max_length=64, blank=True)
    usage_seq = models.PositiveBigIntegerField(default=0)
    loads: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)  # endpoint id -> EndpointLoad
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"gateway {self.id}"


class EndpointMinute(models.Model):
    """What an endpoint had in one minute: `jobs.scaling.forecast.Minute`, so that tomorrow's load can be foreseen."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="minutes")
    minute = models.PositiveBigIntegerField()  # Unix time / 60
    ticks = models.PositiveIntegerField(default=0)
    load_sum = models.FloatField(default=0)
    in_flight_sum = models.FloatField(default=0)
    arrived = models.PositiveIntegerField(default=0)
    served = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    need_max = models.PositiveIntegerField(default=0)
    desired = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["endpoint", "minute"], name="one_row_an_endpoint_and_minute")]

    def __str__(self) -> str:
        return f"{self.endpoint_id} at {self.minute}"


class ReplicaMinute(models.Model):
    """What one replica did in one minute, as all gateways saw it; sums, so that each report of one adds to a row."""

    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="minutes")
    minute = models.PositiveBigIntegerField()  # Unix time / 60
    served = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    timed = models.PositiveIntegerField(default=0)  # words of gateways with a median of the time to the first token
    log_ms_sum = models.FloatField(default=0)  # of ln(milliseconds to the first token), an answer
    log_ms_squares = models.FloatField(default=0)
    speeds = models.PositiveIntegerField(default=0)
    speed_sum = models.FloatField(default=0)  # tokens per second of one stream

    class Meta:
        constraints = [models.UniqueConstraint(fields=["replica", "minute"], name="one_row_a_replica_and_minute")]

    def __str__(self) -> str:
        return f"{self.replica_id} at {self.minute}"
