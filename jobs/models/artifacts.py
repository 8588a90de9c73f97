"""Files in the store: inputs, checkpoints, outputs, prepared data."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import F, Q

from jobs.models.demand import Job
from jobs.models.leases import Attempt, Lease
from jobs.models.querysets import ArtifactQuerySet
from jobs.states import ARTIFACT_MACHINE, ArtifactState
from marketplace.accounts.models import Organisation
from marketplace.foundation.ids import new_id

STORAGE_MONTH_DAYS = 30
STORE_NAME_MAX = 500
ERROR_CHARACTERS_MAX = 500
STORAGE_UNITS_PER_MICRO = 1024**3 * STORAGE_MONTH_DAYS  # a byte for a day costs its price a GiB and month of these


class ArtifactKind(models.TextChoices):
    """input: the customer's files. checkpoint: from where a job can resume. output: what the customer gets. prepared:
    what took an attempt long to make, such as tokens, for later ones of its job."""

    INPUT = "input"
    CHECKPOINT = "checkpoint"
    OUTPUT = "output"
    PREPARED = "prepared"


class Artifact(models.Model):
    """A set of files in the store, complete when every node's part is."""

    STATE_MACHINE = ARTIFACT_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="artifacts")
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.PROTECT, related_name="artifacts")
    attempt = models.ForeignKey(Attempt, null=True, blank=True, on_delete=models.PROTECT, related_name="artifacts")
    kind = models.CharField(max_length=16, choices=ArtifactKind.choices)
    step = models.PositiveBigIntegerField(null=True, blank=True)
    generation = models.PositiveSmallIntegerField(default=0, db_default=0)  # of the gang that saved it
    state = models.CharField(max_length=16, choices=ArtifactState.choices, default=ArtifactState.UPLOADING)
    parts_expected = models.PositiveSmallIntegerField(default=1)
    size_bytes = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    condemned_at = models.DateTimeField(null=True, blank=True)  # of a checkpoint that nothing resumes from any more
    # Of what no living job needs: until when it is kept, since when its owners know, and until when if nobody pays.
    kept_until = models.DateTimeField(null=True, blank=True)
    warned_at = models.DateTimeField(null=True, blank=True)
    unpaid_until = models.DateTimeField(null=True, blank=True)

    objects = ArtifactQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ArtifactState.values), name="artifact_state_known"),
            models.UniqueConstraint(
                fields=["attempt", "kind", "step", "generation"],
                nulls_distinct=False,
                condition=Q(attempt__isnull=False),
                name="one_artifact_per_attempt_and_step",
            ),
            models.UniqueConstraint(
                fields=["job"],
                condition=Q(kind="prepared", state="complete"),
                name="one_prepared_artifact_per_job",
            ),
        ]
        indexes = [
            models.Index(fields=["kept_until"], condition=Q(state="complete"), name="artifact_kept_until"),
            models.Index(
                fields=["unpaid_until"],
                condition=Q(state="complete", unpaid_until__isnull=False),
                name="artifact_unpaid_until",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.id} ({self.state})"

    @property
    def goes_at(self) -> datetime | None:
        """From when on it may be deleted; None: it is gone, a job needs it, or nothing has dated it yet."""
        dates = [each for each in (self.kept_until, self.unpaid_until) if each is not None]
        return min(dates, default=None) if self.state == ArtifactState.COMPLETE else None


class ArtifactPart(models.Model):
    """What one node (or the customer) puts into an artifact: files with their SHA-256, and where the meter stood."""

    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE, related_name="parts")
    lease = models.ForeignKey(Lease, null=True, blank=True, on_delete=models.PROTECT, related_name="artifact_parts")
    node_rank = models.PositiveSmallIntegerField(default=0)
    files: models.JSONField[Any, Any] = models.JSONField()  # [{"path", "size", "sha256", "upload_id"?}]
    file_count = models.PositiveIntegerField(default=0, db_default=0)  # as announced; `files` is empty once they went
    billable_ms = models.PositiveBigIntegerField(default=0)  # the lease's meter when the files were complete
    is_complete = models.BooleanField(default=False)
    # When the last address expires that bytes can be PUT to; None where no bytes can come any more.
    urls_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["artifact", "node_rank"], name="one_part_per_rank")]

    def __str__(self) -> str:
        return f"part {self.node_rank} of {self.artifact_id}"


class ArtifactCopy(models.Model):
    """What is known of an artifact's second copy. A row is written before its first byte, and goes after its last."""

    artifact = models.OneToOneField(Artifact, primary_key=True, on_delete=models.CASCADE, related_name="copy")
    store = models.CharField(max_length=STORE_NAME_MAX)  # as `second_store_name` names it
    copied_at = models.DateTimeField(null=True, blank=True)  # when every file was there; None: not all are
    tries = models.PositiveIntegerField(default=0)  # that failed since the last that did not
    next_try_at = models.DateTimeField()
    busy_until = models.DateTimeField(null=True, blank=True)  # until then somebody may write bytes of it
    suspected_at = models.DateTimeField(null=True, blank=True)  # when bytes of the first store were missing or wrong
    checked_at = models.DateTimeField(null=True, blank=True)  # when both stores' bytes were last read for that
    checked_files = models.PositiveIntegerField(default=0, db_default=0)  # of the check that is under way
    lost_files = models.PositiveIntegerField(default=0, db_default=0)  # that it found good in neither store
    repaired_files = models.PositiveIntegerField(default=0)  # that one store got back from the other
    is_damaged = models.BooleanField(default=False)  # neither store has the announced bytes of some file
    last_error = models.CharField(max_length=ERROR_CHARACTERS_MAX, blank=True, default="")

    class Meta:
        verbose_name_plural = "artifact copies"
        indexes = [
            models.Index(
                fields=["next_try_at"],
                condition=Q(copied_at__isnull=True) | Q(suspected_at__isnull=False),
                name="artifact_copy_due",
            )
        ]

    def __str__(self) -> str:
        return f"copy of {self.artifact_id} in {self.store}"


class JobInput(models.Model):
    """What an earlier job left, as a folder of a later one's inputs; kept until that has ended."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="result_inputs")
    folder = models.CharField(max_length=63)
    artifact = models.ForeignKey(Artifact, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "folder"], name="one_result_per_folder")]

    def __str__(self) -> str:
        return f"{self.folder} of job {self.job_id}"


class StorageQuota(models.Model):
    """How many bytes one organisation may keep, in place of the default."""

    organisation = models.OneToOneField(Organisation, primary_key=True, on_delete=models.CASCADE, related_name="+")
    bytes_max = models.PositiveBigIntegerField()

    def __str__(self) -> str:
        return f"{self.bytes_max} bytes of {self.organisation}"


class StorageCharge(models.Model):
    """What an organisation kept beyond the allowance on one day, and whether it paid; its id groups the transfer."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="+", db_index=False)
    day = models.DateField(db_index=True)  # in UTC
    kept_bytes = models.PositiveBigIntegerField()
    free_bytes = models.PositiveBigIntegerField()
    usd_micros_per_gib_month = models.PositiveBigIntegerField()
    due_usd_micros = models.PositiveBigIntegerField()
    charged_usd_micros = models.PositiveBigIntegerField()
    is_paid = models.BooleanField()
    remainder = models.PositiveBigIntegerField()  # of STORAGE_UNITS_PER_MICRO, carried to the next day
    charged_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "day"], name="one_storage_charge_a_day"),
            models.CheckConstraint(
                condition=Q(is_paid=True, charged_usd_micros=F("due_usd_micros"))
                | Q(is_paid=False, charged_usd_micros=0),
                name="storage_day_is_paid_whole_or_not",
            ),
            models.CheckConstraint(
                condition=Q(remainder__lt=STORAGE_UNITS_PER_MICRO), name="storage_remainder_below_one_micro"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.organisation_id} on {self.day}: {self.charged_usd_micros} of {self.due_usd_micros}"
