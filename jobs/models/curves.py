"""What a job's program reported of its training, over the whole run, at a bounded size."""

from __future__ import annotations

from django.db import models

from jobs.models.demand import Job


class Curve(models.Model):
    """How a job's curve is kept: how wide its points are, and which series its program named itself."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="curve")
    attempt = models.PositiveIntegerField()  # the newest that said where it goes on: by a step, or as resumed
    stride = models.PositiveBigIntegerField(default=1)  # steps that a point may hold; a power of two
    point_count = models.PositiveIntegerField(default=0)
    names = models.JSONField(default=list)  # of the program's own series, in the order of their coming
    has_more_names = models.BooleanField(default=False)  # it named more than are kept

    def __str__(self) -> str:
        return f"curve of {self.job_id}"


class CurvePoint(models.Model):
    """The steps of one bucket: from `bucket` times the curve's stride on, of each series what was reported there.

    `values`: by the name of the series [count, mean, lowest, highest, newest].
    """

    id = models.BigAutoField(primary_key=True)
    curve = models.ForeignKey(Curve, on_delete=models.CASCADE, related_name="points", db_index=False)
    bucket = models.PositiveBigIntegerField()
    attempt = models.PositiveIntegerField()  # the newest that reported a step of it
    first_step = models.PositiveBigIntegerField()
    last_step = models.PositiveBigIntegerField()
    values = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["curve", "bucket"], name="curve_point_once_per_bucket")]

    def __str__(self) -> str:
        return f"steps {self.first_step} to {self.last_step} of {self.curve_id}"
