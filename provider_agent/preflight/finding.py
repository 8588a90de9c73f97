"""One line of a report on this computer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """PASS, FIX or SKIP; `fix` is a command or an instruction, empty when nothing is wrong."""

    verdict: Literal["PASS", "FIX", "SKIP"]
    check: str
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """For --json."""
        return asdict(self)

    def as_text(self) -> str:
        """For people."""
        return f"{self.verdict:4}  {self.check}: {self.found}" + (f"\n      fix: {self.fix}" if self.fix else "")


def guard(check: str, examine_one: Callable[[], Finding]) -> Finding:
    """A check that raises is a finding, not an end."""
    try:
        return examine_one()
    except Exception as error:
        return Finding("FIX", check, f"{type(error).__name__}: {error}", "see docs/provider-guide.md")


def version_of(text: str) -> tuple[int, ...]:
    """1.17.8-1 as (1, 17, 8): the leading numbers, for comparing."""
    numbers = []
    for part in text.strip().lstrip("v").split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
