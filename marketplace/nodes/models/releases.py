"""The versions of the agent."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from marketplace.foundation.ids import new_id
from marketplace.nodes.states import RELEASE_MACHINE, ReleaseState
from provider_agent.protocol import VERSION_CHARACTERS_MAX


class AgentRelease(models.Model):
    """One published wheel of the agent, and how far it has been rolled out."""

    STATE_MACHINE = RELEASE_MACHINE

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    version = models.CharField(max_length=VERSION_CHARACTERS_MAX, unique=True)
    wheel = models.CharField(max_length=120)
    sha256 = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=ReleaseState.choices, default=ReleaseState.ROLLING)
    reason = models.CharField(max_length=200, blank=True)
    share = models.FloatField(default=0)  # of the nodes that update themselves, to which it is sent at most
    stage_at = models.DateTimeField()  # since when
    forgiven = models.PositiveIntegerField(default=0)  # rollbacks that an operator has accepted
    rollback_from = models.CharField(max_length=VERSION_CHARACTERS_MAX, blank=True)  # its nodes roll back
    published_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=ReleaseState.values), name="release_state_known"),
            models.CheckConstraint(condition=Q(share__gte=0, share__lte=1), name="release_share_is_one"),
        ]
        ordering = ["-published_at"]

    def __str__(self) -> str:
        return f"{self.version} ({self.state}, {self.share:.0%})"
