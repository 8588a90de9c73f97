"""Volumes: named folders of an organisation in the store, of which each put makes another version."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.artifacts import Artifact
from marketplace.accounts.models import Organisation
from marketplace.foundation.ids import new_id

VOLUME_NAME_CHARACTERS_MAX = 63
SOURCE_CHARACTERS_MAX = 200


class Volume(models.Model):
    """A name under which an organisation's jobs find data; its newest version is what they get."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="volumes")
    name = models.CharField(max_length=VOLUME_NAME_CHARACTERS_MAX)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organisation", "name"], name="one_volume_per_name")]

    def __str__(self) -> str:
        return f"{self.name} of {self.organisation_id}"


class VolumeVersion(models.Model):
    """What one put left. As long as the row is there, its files are kept, unless nobody pays for them."""

    volume = models.ForeignKey(Volume, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()  # from 1 on
    artifact = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="volume_versions")
    source = models.CharField(max_length=SOURCE_CHARACTERS_MAX, blank=True, default="")  # in its owner's words
    created_at = models.DateTimeField(auto_now_add=True)
    superseded_at = models.DateTimeField(null=True, blank=True)  # when a newer version came; None: it is the newest

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["volume", "number"], name="one_version_per_number"),
            models.UniqueConstraint(
                fields=["volume"], condition=Q(superseded_at__isnull=True), name="one_newest_version_per_volume"
            ),
            models.CheckConstraint(condition=Q(number__gte=1), name="version_numbers_begin_at_one"),
        ]
        indexes = [
            models.Index(
                fields=["superseded_at"], condition=Q(superseded_at__isnull=False), name="volume_version_superseded"
            )
        ]

    def __str__(self) -> str:
        return f"version {self.number} of volume {self.volume_id}"
