"""An amount is a whole number, or it is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from billing.fields import AMOUNT_MAX, AmountField


@pytest.mark.parametrize(
    ("given", "kept"), [(0, 0), (AMOUNT_MAX, AMOUNT_MAX), ("12", 12), (Decimal("3.0"), 3), (None, None)]
)
def test_whole_numbers_are_kept_exactly(given: Any, kept: int | None) -> None:
    assert AmountField().to_python(given) == kept


@pytest.mark.parametrize("given", [1.0, True, "1.5", Decimal("0.1"), "NaN", "Infinity", "twelve", b"1", [1]])
def test_anything_else_is_refused_and_never_rounded(given: Any) -> None:
    with pytest.raises(ValidationError):
        AmountField().to_python(given)
