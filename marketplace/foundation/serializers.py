"""Bases of all serializers: what a request names must exist, and a moment lies within the calendar."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from django.db import models
from rest_framework import serializers

from provider_agent.protocol import MOMENT_FIRST, MOMENT_LAST

M = TypeVar("M", bound=models.Model)


class RefuseUnknownFields:
    """Refuses a request that names a field which is not writable here, so that typing errors are seen."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            fields: Mapping[str, serializers.Field[Any, Any, Any, Any]] = self.fields  # type: ignore[attr-defined]
            writable = sorted(name for name, field in fields.items() if not field.read_only)
            unknown = sorted(str(name) for name in data if name not in writable)
            if unknown:
                expected = f"Expected: {', '.join(writable)}." if writable else "This request takes no fields."
                raise serializers.ValidationError(
                    {name: [f"Unknown field. {expected}"] for name in unknown}, code="unknown_field"
                )
        return super().to_internal_value(data)  # type: ignore[misc]


class MomentField(serializers.DateTimeField):
    """A moment as the wire types have it (`provider_agent.protocol.bounds`): PostgreSQL and Python hold it."""

    def enforce_timezone(self, value: datetime) -> datetime:
        # Before it is converted, which would overflow; a moment without a time zone is UTC's, as DRF reads it.
        if value.tzinfo is not None and not MOMENT_FIRST <= value <= MOMENT_LAST:
            self._refuse()
        moment = super().enforce_timezone(value)
        if not MOMENT_FIRST <= moment <= MOMENT_LAST:
            self._refuse()
        return moment

    def _refuse(self) -> None:
        years = f"{MOMENT_FIRST.year} to {MOMENT_LAST.year}"
        raise serializers.ValidationError(f"This moment lies outside of {years} (UTC).", code="out_of_calendar")


class StrictSerializer(RefuseUnknownFields, serializers.Serializer[Any]):
    """A plain serializer that refuses unknown fields."""


class StrictModelSerializer(RefuseUnknownFields, serializers.ModelSerializer[M]):
    """A model's serializer that refuses unknown fields."""

    serializer_field_mapping = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.DateTimeField: MomentField,
    }


class Nothing(StrictSerializer):
    """The body of a request that needs none."""
