"""All kinds of job by their names, as a job file knows them; an unknown name is refused.

`jobs/kinds/registry.py` says how one is added.
"""

from __future__ import annotations

from jobs.spec.errors import UnknownKind
from jobs.spec.kinds.base import SpecKind
from jobs.spec.kinds.command import CommandSpec
from jobs.spec.kinds.eval import EvalSpec
from jobs.spec.kinds.serve import ServeSpec
from jobs.spec.kinds.train import TrainSpec
from jobs.spec.model import Spec

KINDS: dict[str, SpecKind] = {kind.name: kind for kind in (TrainSpec(), ServeSpec(), CommandSpec(), EvalSpec())}


def kind_of(spec: Spec) -> SpecKind:
    """The kind of a spec; raises UnknownKind."""
    return kind_named(spec.kind)


def kind_named(name: str) -> SpecKind:
    """The kind of this name; raises UnknownKind, so that none is ever taken for another."""
    found = find_kind(name)
    if found is None:
        raise UnknownKind(name, expected_kinds())
    return found


def find_kind(name: object) -> SpecKind | None:
    """The kind of this name as it came from outside, or None."""
    return KINDS.get(name) if isinstance(name, str) else None


def placed_whole() -> list[str]:
    """Names of the kinds whose jobs the queue places, one attempt at a time."""
    return [name for name, kind in KINDS.items() if kind.is_placed_whole]


def expected_kinds() -> str:
    """The names for people: `train, serve, command or eval`."""
    *names, last = KINDS
    return f"{', '.join(names)} or {last}" if names else last
