"""The interface of a kind of job on the job file's side. Its other half, on the server, is `jobs.kinds.base.Kind`.

The base class describes a program that runs to its end on the customer's own command; a kind overrides what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar, TypeGuard

from jobs.spec.document import Path
from jobs.spec.model import Spec
from jobs.spec.section import Section
from jobs.spec.units import parse_nodes
from runtimes.contract import LOCK_NAME, PROJECT_NAME, WHEELS_NAME

Finding = tuple[Path, str, str]  # where, what is wrong, what was expected


class SpecKind:
    """One kind of job: its section of the job file, the rules between its fields, and what the job file implies."""

    name: ClassVar[str]  # the value of `kind:`; also the key of the section
    section: ClassVar[type[Section] | None] = None  # None: the kind has no section of its own
    section_expected: ClassVar[str] = ""  # what an error names as expected in place of the section
    meaningless: ClassVar[tuple[str, ...]] = ()  # top-level keys that are refused for this kind
    misplaced: ClassVar[Mapping[str, str]] = {}  # a key often written in this section by mistake -> its section
    is_placed_whole: ClassVar[bool] = True  # placed from the queue as one attempt at a time; else by its own loop
    may_grow: ClassVar[bool] = False  # its own runtime goes on with more nodes: `nodes` may be a range
    has_endpoint: ClassVar[bool] = False  # answers requests through the gateway; its node opens a tunnel

    def check(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """The rules between fields that a file of this kind breaks, on raw data; wrong types are found elsewhere."""
        return iter(())

    def canonical_section(self, section: Section) -> dict[str, Any]:
        """The section as JSON with all defaults written, which the parser reads back to an equal section."""
        return section.model_dump()

    def config(self, spec: Spec) -> dict[str, Any]:
        """config.json of the kind's runtime; empty for an own command."""
        return {}

    def dtype(self, spec: Spec) -> str:
        """The number type that the program computes in, or `auto`."""
        return "auto"

    def runtime_features(self, spec: Spec) -> frozenset[str]:
        """What the node's runtime must know that its first version did not; older agents are passed over."""
        used = {
            "outputs": spec.outputs,
            "inputs": spec.inputs or None,
            "checkpoint_path": spec.checkpoint.path,
            "checkpoint_auto": spec.checkpoint.is_auto or None,
            "setup": spec.setup,
            "requirements": spec.requirements,
            "lent_paths": self.lent_paths(spec) or None,
            "requirements_lock": (PurePosixPath(spec.requirements or "").name == LOCK_NAME) or None,
        }
        return frozenset(name for name, value in used.items() if value is not None)

    def runtime_secrets(self, spec: Spec) -> Mapping[str, str]:
        """Secrets that our own runtime is given for this file, by the names of the variables that it finds them in."""
        return {}

    def runtime_variables(self, spec: Spec) -> frozenset[str]:
        """Names of `env` and `secrets` that our own runtime reads for this file, beside those that it always may."""
        return frozenset()

    def lent_paths(self, spec: Spec) -> list[str]:
        """Paths that our own runtime reads in shared host folders: what lies there is each provider's."""
        return []

    def steps(self, spec: Spec) -> int | None:
        """Steps of the whole job; None where the file declares none."""
        return spec.work.steps if spec.work else None

    def flops(self, spec: Spec) -> float | None:
        """Floating-point operations of the whole job; None where the file declares no work."""
        work = spec.work
        if work is None or work.flops_per_step is None or work.steps is None:
            return None
        return float(work.flops_per_step) * work.steps

    def memory_floor_mib(self, spec: Spec) -> int:
        """MiB of a device below which the program runs out of memory for certain; 0 where nothing is known."""
        return 0

    def shows_events(self, canonical: Mapping[str, Any]) -> bool:
        """Whether the program's events show all that a person wants to see, so that its log need not be."""
        return False


def check_own_command(data: Mapping[str, Any]) -> Iterator[Finding]:
    """The rules of `work`, `checkpoint.path` and `requirements` beside a command of the customer's own."""
    yield from check_work(data)
    work = data.get("work")
    if isinstance(work, dict) and work.get("tokens") is not None:
        yield ("work", "tokens"), "means nothing for an own command", "steps, with flops_per_step"
    yield from _check_checkpoint_path(data)
    yield from _check_requirements(data)


def _check_requirements(data: Mapping[str, Any]) -> Iterator[Finding]:
    """The file is among those that are sent; its packages come from the internet, or lie beside it as wheels."""
    path, files = data.get("requirements"), data.get("files", [])
    names = [files] if isinstance(files, str) else files
    if not isinstance(path, str) or not isinstance(names, list):
        return
    sent = {PurePosixPath(name) for name in names if isinstance(name, str)}
    wanted = PurePosixPath(path)
    if not sent & {wanted, *wanted.parents}:
        yield ("requirements",), f"{path} is not among files", f"files: [..., {path}]"
    if wanted.name == LOCK_NAME:
        yield from _check_lock(data, wanted, sent)
        return
    wheels = wanted.parent / WHEELS_NAME
    has_wheels = any(each.is_relative_to(wheels) or wheels.is_relative_to(each) for each in sent)
    if data.get("network", "none") != "public" and not has_wheels:
        message = "are installed from the internet, and network is none"
        yield ("requirements",), message, f"network: public, or all packages as wheels in {wheels}/ under files"


def _check_lock(data: Mapping[str, Any], wanted: PurePosixPath, sent: set[PurePosixPath]) -> Iterator[Finding]:
    """A lock is read with its project, by uv, which is fetched where a node or image does not have it."""
    project = wanted.parent / PROJECT_NAME
    if not sent & {project, *project.parents}:
        yield ("requirements",), f"{wanted} is sent without its project", f"files: [..., {project}]"
    if data.get("network", "none") != "public":
        message = "is read by uv, which not every node has, and network is none"
        expected = "network: public, or what `uv export --format requirements.txt` makes of it, with wheels beside it"
        yield ("requirements",), message, expected


def _check_checkpoint_path(data: Mapping[str, Any]) -> Iterator[Finding]:
    """A path is copied by time, because no step of a strange program is seen, and on one node alone."""
    checkpoint, resources = data.get("checkpoint"), data.get("resources")
    if not isinstance(checkpoint, dict) or checkpoint.get("path") is None:
        return
    every = checkpoint.get("every")
    if isinstance(every, str) and "step" in every:
        message = "counts steps, and path is copied by time: nobody sees the steps of a program of your own"
        yield ("checkpoint", "every"), message, "a duration, such as 5m"
    if nodes_of(resources)[1] > 1:
        message = "is for one node: those of a gang would be copied at different moments of the training"
        yield ("checkpoint", "path"), message, "nodes: 1, or a program that saves below $SOUK_CHECKPOINT_DIR"


def check_work(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Work, where it is declared, is either tokens or steps."""
    work = data.get("work")
    if not isinstance(work, dict):
        return
    given = [name for name in ("tokens", "steps") if work.get(name) is not None]
    if len(given) != 1:
        message = "both tokens and steps are given" if given else "neither tokens nor steps is given"
        yield ("work",), message, "exactly one of tokens and steps"


def nodes_of(resources: object) -> tuple[int, int]:
    """(fewest, most) nodes in a raw `resources` section; one where nothing, or nothing readable, is given."""
    try:
        return parse_nodes(resources.get("nodes", 1) if isinstance(resources, dict) else 1)
    except ValueError:
        return 1, 1


def is_count(value: object) -> TypeGuard[int]:
    """Whether a raw value is a whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
