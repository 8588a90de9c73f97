"""All kinds of job by their names, as the server knows them. A name that is not here raises UnknownKind.

To add a kind: a module in `jobs/spec/kinds` with its section and rules, a module here, a row in both registries, what
a node does for it in `provider_agent/lease/runtimes`, and a migration of the constraint
`job_kind_known` (`jobs/models/demand.py`).
"""

from __future__ import annotations

from jobs.errors import UnknownKind
from jobs.kinds.base import Kind
from jobs.kinds.command import Command
from jobs.kinds.eval import Eval
from jobs.kinds.serve import Serve
from jobs.kinds.train import Train
from jobs.models import Job

KINDS: dict[str, Kind] = {kind.name: kind for kind in (Train(), Serve(), Command(), Eval())}


def kind_of(job: Job) -> Kind:
    """The kind of a job; raises UnknownKind."""
    return kind_named(job.kind)


def kind_named(name: str) -> Kind:
    """The kind of this name; raises UnknownKind, so that none is ever taken for another."""
    try:
        return KINDS[name]
    except KeyError:
        raise UnknownKind(kind=name, known=", ".join(KINDS)) from None


def settled_in_parts() -> list[str]:
    """Names of the kinds whose jobs are settled day by day, from a hold that moves on."""
    return [name for name, kind in KINDS.items() if kind.is_settled_in_parts]


def with_predicted_steps() -> list[str]:
    """Names of the kinds whose jobs can be compared with what the planner says of their steps."""
    return [name for name, kind in KINDS.items() if kind.has_predicted_steps]
