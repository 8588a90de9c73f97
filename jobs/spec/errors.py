"""What is wrong with a job file; `messages.py` has the words.

ValueError
└── SpecErrors      every mistake of one file, in the order of its lines
    └── UnknownKind a kind of job that this program does not know, wherever the name came from
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

ERRORS_MAX = 100  # shown of one file


@dataclass(frozen=True)
class SpecError:
    """One mistake: where it is, what is wrong, what was expected, and the valid name that is nearest."""

    line: int | None  # from 1; None where there is no text (a spec sent as JSON)
    column: int | None
    path: str  # "resources.gpus"; empty for the whole file
    message: str
    expected: str = ""
    nearest: str | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        text = where + (f"{self.path}: " if self.path else "") + self.message
        if self.nearest:
            text += f"; did you mean {self.nearest}?"
        return text + (f" (expected {self.expected})" if self.expected else "")


class SpecErrors(ValueError):
    """The job file has mistakes."""

    code = "bad_spec"
    status = 422

    def __init__(self, errors: Iterable[SpecError]) -> None:
        ordered = sorted(errors, key=lambda error: (error.line or 0, error.column or 0, error.path))
        self.errors: list[SpecError] = ordered[:ERRORS_MAX]
        self.count = len(ordered)
        super().__init__("\n".join(str(error) for error in self.errors))

    @property
    def details(self) -> dict[str, Any]:
        """The mistakes as JSON, for the API and for `--json`."""
        return {"errors": [asdict(error) for error in self.errors], "count": self.count}


class UnknownKind(SpecErrors):
    """There is no kind of job of this name here; `expected` lists those that there are."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__([SpecError(None, None, "kind", f"{name!r} is not a kind", expected)])
