"""A request may name only what exists."""

from __future__ import annotations

import pytest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from marketplace.foundation.serializers import StrictSerializer


class Thing(StrictSerializer):
    id = serializers.UUIDField(read_only=True)
    name = serializers.CharField()


@pytest.mark.parametrize("extra", ["nmae", "id", "is_verified"])
def test_a_field_that_cannot_be_written_is_refused(extra: str) -> None:
    thing = Thing(data={"name": "a", extra: "x"})
    with pytest.raises(ValidationError) as caught:
        thing.is_valid(raise_exception=True)
    assert caught.value.detail == {extra: ["Unknown field. Expected: name."]}


def test_known_fields_pass() -> None:
    thing = Thing(data={"name": "a"})
    assert thing.is_valid()
