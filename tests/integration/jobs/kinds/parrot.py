"""A kind of job that exists in tests alone: it writes a text, again and again. Nothing but this file knows of it.

The node needs no preparation for it: its runtime is a command, which reads the section from config.json as the built-in
runtimes do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from jobs.kinds.base import Kind
from jobs.spec import Spec
from jobs.spec.kinds.base import Finding, SpecKind
from jobs.spec.section import Section
from provider_agent.protocol import Program

RUNTIME = Path(__file__).with_name("parrot_runtime.py")
FLOPS_PER_TIME = 1e9


class ParrotSection(Section):
    """What to write, and how often."""

    text: str = Field(min_length=1, description="a text")
    times: int = Field(3, ge=1, le=100, description="a whole number from 1 to 100")


class ParrotSpec(SpecKind):
    """A job file with an `parrot` section."""

    name = "parrot"
    section = ParrotSection
    section_expected = "a mapping with text and times"
    meaningless = ("work", "image", "command")

    def check(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """There is something to write."""
        if data.get("parrot") is None:
            yield (), "nothing to write: there is no parrot section", "parrot: {text: ...}"

    def config(self, spec: Spec) -> dict[str, Any]:
        """The section as it is."""
        return parrot_of(spec).model_dump()

    def steps(self, spec: Spec) -> int | None:
        """One a time."""
        return parrot_of(spec).times

    def flops(self, spec: Spec) -> float | None:
        """Writing is cheap."""
        return FLOPS_PER_TIME * parrot_of(spec).times


class Parrot(Kind):
    """Runs to its end, and is held, settled and tried again as any program is."""

    spec_kind = ParrotSpec()

    def program(self, spec: Spec) -> Program:
        """The runtime of ten lines."""
        return super().program(spec).model_copy(update={"command": [sys.executable, str(RUNTIME)]})


def parrot_of(spec: Spec) -> ParrotSection:
    """The section of a spec of this kind."""
    assert isinstance(spec.section, ParrotSection)
    return spec.section
