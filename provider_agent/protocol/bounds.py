"""How far the numbers, moments and texts of a message may go, and the types that hold them to it.

Whoever reads a stranger's message stores it, adds it up and shows it to others: a number that no column holds, a moment
that no calendar has or a mean that is infinite must be refused before any of that. Numbers are strict: neither `true`
nor `"1"` nor `1.0` is a whole number. A test holds every message that is read to these bounds
(tests/unit/repository/test_bounds.py).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, Strict

# The clock of a computer without a battery begins here; and whatever time zone the last moment is shown in, it has a
# year of four digits.
MOMENT_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT_LAST: Final = datetime(2999, 12, 31, 23, 59, 59, tzinfo=UTC)
COUNT_MAX: Final = 2**63 - 1  # PostgreSQL's bigint
SMALL_COUNT_MAX: Final = 2**31 - 1  # its integer
UINT64_MAX: Final = 2**64 - 1  # of receipts, as the contract has it
FIGURE_MAX: Final = 1e21  # above 2**64, which some drivers give where they know nothing; a million of them add up
BYTES_MAX: Final = 10**14  # of one file: 20,000 of them fit in a bigint
_DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,77}", re.ASCII)  # of 256 bits at most
NODE_RANK_MAX: Final = 2**15 - 1  # PostgreSQL's smallint
PRICE_USD_MICROS_MAX: Final = 1_000_000_000  # of a device and hour
SIGNATURE_CHARACTERS_MAX: Final = 400
DETAIL_CHARACTERS_MAX: Final = 4096
DETAILS_MAX: Final = 64


def _within_calendar(moment: datetime) -> datetime:
    """In UTC. The comparison comes first: to convert what lies beyond the calendar is an error by itself."""
    if not MOMENT_FIRST <= moment <= MOMENT_LAST:
        raise ValueError(f"lies outside of {MOMENT_FIRST.year} to {MOMENT_LAST.year} (UTC)")
    return moment.astimezone(UTC)


def _from_digits(value: object) -> object:
    """The number of a text of decimal digits, as EIP-712 messages carry it; anything else as it is."""
    is_digits = isinstance(value, str) and _DIGITS.fullmatch(value)
    return int(str(value)) if is_digits else value


Moment = Annotated[AwareDatetime, AfterValidator(_within_calendar)]
Count = Annotated[int, Strict(), Field(ge=0, le=COUNT_MAX)]
SmallCount = Annotated[int, Strict(), Field(ge=0, le=SMALL_COUNT_MAX)]
SmallNumber = Annotated[int, Strict(), Field(ge=-SMALL_COUNT_MAX, le=SMALL_COUNT_MAX)]
Bytes = Annotated[int, Strict(), Field(ge=0, le=BYTES_MAX)]
Figure = Annotated[float, Strict(), Field(ge=-FIGURE_MAX, le=FIGURE_MAX, allow_inf_nan=False)]
Measure = Annotated[float, Strict(), Field(ge=0, le=FIGURE_MAX, allow_inf_nan=False)]
Whole = Annotated[int, Strict()]  # with bounds of the field's own
# As wallets and their libraries write it in JSON, which has no numbers of 256 bits: a number, or its decimal digits.
WalletInteger = Annotated[int, BeforeValidator(_from_digits), Strict()]
Signature = Annotated[str, Field(max_length=SIGNATURE_CHARACTERS_MAX)]
Detail = (
    Annotated[str, Field(max_length=DETAIL_CHARACTERS_MAX)]
    | Annotated[int, Strict(), Field(ge=-COUNT_MAX, le=COUNT_MAX)]
    | Figure
    | None
)
DetailName = Annotated[str, Field(min_length=1, max_length=40)]
