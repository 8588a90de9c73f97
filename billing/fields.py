"""Exact amounts of money in the database: numeric(78,0) there, `int` here, and nothing between."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from django.core.exceptions import ValidationError
from django.db import models

if TYPE_CHECKING:
    _Exact = models.DecimalField[Any, int]
else:
    _Exact = models.DecimalField

AMOUNT_DIGITS_MAX: Final = 78  # 2**256 - 1, the largest amount of a token, has 78 digits
AMOUNT_MAX: Final = 2**256 - 1
SUM_DIGITS_MAX: Final = 96  # what went through an account ever: 10**18 of the largest amounts


def is_amount(value: object, *, least: int = 1) -> TypeGuard[int]:
    """Whether money may be moved by this: a whole number of base units, no bool, no float, not beyond 256 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= AMOUNT_MAX


class AmountField(_Exact):
    """Whole base units of an asset (micro-USD for money); always an int in Python, never a float or a Decimal."""

    digits_max = AMOUNT_DIGITS_MAX

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["max_digits"] = self.digits_max
        kwargs["decimal_places"] = 0
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["max_digits"], kwargs["decimal_places"]
        return name, path, args, kwargs

    @property
    def validators(self) -> list[Any]:
        """None of DecimalField's: they call `as_tuple`, which an int has not; the database has the CHECKs."""
        return []

    def from_db_value(self, value: Decimal | None, expression: Any, connection: Any) -> int | None:
        return None if value is None else int(value)

    def to_python(self, value: Any) -> Any:
        """An int, exactly; a fraction, a float or other text is refused rather than rounded."""
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, (str, Decimal)):
            try:
                number = Decimal(value)
            except ArithmeticError:
                number = Decimal("NaN")
            # The digits are counted first: the number that "1e999999999" stands for fills the memory.
            if number.is_finite() and number.adjusted() < self.digits_max and number == number.to_integral_value():
                return int(number)
        raise ValidationError(f"{value!r} is not a whole number of base units", code="invalid")

    def get_prep_value(self, value: Any) -> Any:
        if hasattr(value, "resolve_expression"):
            return value
        return self.to_python(value)

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return self.get_prep_value(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return value if prepared else self.get_prep_value(value)


class SumField(AmountField):
    """What all amounts that ever went through an account add up to: wider, so that no history fills it."""

    digits_max = SUM_DIGITS_MAX
