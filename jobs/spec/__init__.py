"""What a customer writes: a job file, checked. No Django, no I/O: the command and the server share it.

parse(text)       a job file's text -> Spec; raises SpecErrors with every mistake and its line
from_wire(body)   the same rules for a mapping that came as JSON -> Spec
canonical(spec)   the one JSON form of a spec; from_wire(canonical(spec)) == spec
spec_hash(spec)   SHA-256 of that form
train_config(spec)  config.json of the built-in training runtime
serve_config(spec)  that of the serving one
"""

from jobs.spec.canonical import canonical, serve_config, spec_hash, train_config
from jobs.spec.errors import SpecError, SpecErrors
from jobs.spec.model import Budget, Checkpoint, Payment, Resources, Retry, Spec, Work
from jobs.spec.parse import from_wire, parse
from jobs.spec.serve import Serve
from jobs.spec.train import Train

__all__ = [
    "Budget",
    "Checkpoint",
    "Payment",
    "Resources",
    "Retry",
    "Serve",
    "Spec",
    "SpecError",
    "SpecErrors",
    "Train",
    "Work",
    "canonical",
    "from_wire",
    "parse",
    "serve_config",
    "spec_hash",
    "train_config",
]
