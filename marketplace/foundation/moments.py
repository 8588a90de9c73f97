"""Moments that strangers name: the database refuses what lies outside of the calendar, whoever writes it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from provider_agent.protocol import MOMENT_FIRST, MOMENT_LAST


def within_calendar(column: str, *, name: str) -> models.CheckConstraint:
    """A constraint of the bounds of `provider_agent.protocol.bounds.Moment`; NULL is allowed."""
    is_within = Q(**{f"{column}__gte": MOMENT_FIRST, f"{column}__lte": MOMENT_LAST})
    return models.CheckConstraint(condition=Q(**{column: None}) | is_within, name=name)
