"""Evaluations that follow trainings."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.demand import Job


class FollowingEvaluation(models.Model):
    """That a completed training's job file has an evaluation follow it, and what came of that.

    next_try_at   it is to be launched, then
    job           it was launched: this is its job; never another one
    neither       it was given up: why_not says why
    """

    training = models.OneToOneField(
        Job, primary_key=True, on_delete=models.CASCADE, related_name="following_evaluation"
    )
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.PROTECT, related_name="evaluated_training")
    tries = models.PositiveSmallIntegerField(default=0)  # in vain
    next_try_at = models.DateTimeField(null=True, blank=True)
    why_not = models.TextField(blank=True)  # of the last try, for people
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(job__isnull=False, next_try_at=None, why_not="")
                | Q(job=None, next_try_at__isnull=False)
                | (Q(job=None, next_try_at=None) & ~Q(why_not="")),
                name="evaluation_is_due_launched_or_given_up",
            ),
        ]
        indexes = [
            models.Index(fields=["next_try_at"], condition=Q(next_try_at__isnull=False), name="evaluation_due"),
        ]

    def __str__(self) -> str:
        return f"evaluation after job {self.training_id}"
