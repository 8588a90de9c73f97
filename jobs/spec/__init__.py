"""What a customer writes: a job file, checked. No Django, no I/O: the command and the server share it.

`jobs/spec/kinds` has one module a kind of job.

parse.py      a job file's text, or a mapping that came as JSON, to a Spec; every mistake at once
messages.py   the words of each mistake
document.py   YAML text to data with the place of each key and value
model.py      Spec, and the sections that every kind has
task_fields.py  what an evaluation asks, in a file of its own or after a training
following.py  the job file of the evaluation that follows a training
section.py    what sections are built of
rules.py      the rules between fields
canonical.py  the one JSON form of a spec, and its hash
units.py      money, memory and time as people write them
errors.py     SpecErrors, with every mistake and its line
"""

from jobs.spec.canonical import canonical, spec_hash
from jobs.spec.errors import SpecError, SpecErrors, UnknownKind
from jobs.spec.kinds.registry import kind_named, kind_of
from jobs.spec.kinds.serve import ServeSection, serve_of
from jobs.spec.kinds.train import TrainSection
from jobs.spec.model import Budget, Checkpoint, Payment, Resources, Retry, Spec, Work
from jobs.spec.parse import from_wire, parse

__all__ = [
    "Budget",
    "Checkpoint",
    "Payment",
    "Resources",
    "Retry",
    "ServeSection",
    "Spec",
    "SpecError",
    "SpecErrors",
    "TrainSection",
    "UnknownKind",
    "Work",
    "canonical",
    "from_wire",
    "kind_named",
    "kind_of",
    "parse",
    "serve_of",
    "spec_hash",
]
