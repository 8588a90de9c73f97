"""Bases of all serializers: what a request names must exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import models
from rest_framework import serializers

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


class StrictSerializer(RefuseUnknownFields, serializers.Serializer[Any]):
    """A plain serializer that refuses unknown fields."""


class StrictModelSerializer(RefuseUnknownFields, serializers.ModelSerializer[M]):
    """A model's serializer that refuses unknown fields."""


class Nothing(StrictSerializer):
    """The body of a request that needs none."""
