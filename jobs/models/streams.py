"""What agents append while a lease lives."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.leases import Lease


class Stream(models.TextChoices):
    """What an agent appends by offset."""

    LOG = "log"
    EVENT = "event"


class StreamChunk(models.Model):
    """A piece of a lease's log or events, at its offset. Chunks of a stream have no gap and no overlap."""

    id = models.BigAutoField(primary_key=True)
    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="chunks")
    stream = models.CharField(max_length=8, choices=Stream.choices)
    offset = models.PositiveBigIntegerField()
    data = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "stream", "offset"], name="chunk_once_per_offset"),
            models.CheckConstraint(condition=Q(stream__in=Stream.values), name="chunk_stream_known"),
        ]

    def __str__(self) -> str:
        return f"{self.stream} of {self.lease_id} at {self.offset}"
