"""What a node may announce as a checkpoint, and what it must hold before it counts: for pay, and for a resume.

A checkpoint makes an attempt payable that its node broke, and the next attempt starts from it: a false one robs the
customer twice. Of our own training the marketplace knows how many steps there are and what its runtime writes (of
another runtime of ours, which files, and how many bytes a step takes at least):

    check_step       steps within the training, behind where the attempt began, and no faster than anything trains
    check_content    the manifest names just these files; the trainer's words fit the job

Of a customer's own program it knows neither: there whatever the agent takes for a checkpoint is one. Sizes are compared
with nothing: a padded checkpoint would make every honest one after it too small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jobs.artifacts.choice import get_store
from jobs.artifacts.store import key_for
from jobs.errors import BadManifest
from jobs.kinds.registry import kind_of
from jobs.leases.leasing import GRACE_MS
from jobs.models import Artifact, ArtifactPart, Job, Lease
from jobs.spec import from_wire
from jobs.spec.kinds.train import OPEN_FIELDS
from runtimes.contract import (
    MANIFEST_NAME,
    METADATA_BYTES_MAX,
    METADATA_FILE,
    PINNED_SETTINGS,
    TOKENIZER_BYTES_MAX,
    TOKENIZER_FILE,
    TRAINER_BYTES_MAX,
    TRAINER_FILE,
)

STEPS_PER_SECOND_MAX: Final = 1000  # no model that is worth a device trains so fast
MANIFEST_BYTES_MAX: Final = 16 * 1024 * 1024  # of the 20,000 files that an artifact may have, 800 bytes each
# What our runtime writes, by name: no other is safe for whoever fetches it. One that ends with `.partial`, or is as
# long as a file system allows, would end the next attempt on its node, as nobody's fault and before anything is tried.
_NAMES: Final = frozenset({MANIFEST_NAME, METADATA_FILE, TRAINER_FILE, TOKENIZER_FILE})
_SHARD: Final = re.compile(r"__[0-9]{1,9}_[0-9]{1,9}\.distcp")
_BYTES_MAX: Final = {METADATA_FILE: METADATA_BYTES_MAX, TOKENIZER_FILE: TOKENIZER_BYTES_MAX}


def check_step(lease: Lease, step: int) -> None:
    """Raise BadManifest for a checkpoint that this lease cannot have made."""
    job = lease.attempt.job
    if not _is_ours(job):
        return
    resumed = lease.attempt.resume_artifact
    first = (resumed.step or 0) if resumed else 0
    total = kind_of(job).spec_kind.steps(from_wire(job.spec))
    if total is not None and step > total:
        raise BadManifest(f"The training has {total} steps; step {step} is none of them.")
    if resumed is not None and step <= first:
        raise BadManifest(f"This attempt began at step {first}; it makes no checkpoint of step {step}.")
    seconds = (lease.observed_ms + GRACE_MS) / 1000
    if step - first > seconds * STEPS_PER_SECOND_MAX:
        raise BadManifest(f"The node was seen running for {seconds:.0f} s; it cannot have come to step {step}.")


def check_content(part: ArtifactPart) -> None:
    """Raise BadManifest for a node's part that our runtime cannot have written; reads from the store."""
    artifact = part.artifact
    if artifact.kind != "checkpoint" or artifact.job is None or not _is_ours(artifact.job):
        return
    if mistake := next(_mistakes(part, artifact, artifact.job), None):
        raise BadManifest(f"This is no checkpoint of the job: {mistake}.")


def _mistakes(part: ArtifactPart, artifact: Artifact, job: Job) -> Iterator[str]:
    others = kind_of(job).checkpoint_files
    sizes = {file["path"]: file["size"] for file in part.files}
    if odd := sorted(path for path in sizes if not _is_named(path, others)):
        yield f"{odd[0]!r:.100} is no file of one"
    bounds = _BYTES_MAX if others is None else others
    if large := [path for path, bytes_max in bounds.items() if sizes.get(path, 0) > bytes_max]:
        yield f"its {large[0]} is too large to be read"
    if others is not None:
        has, needs = sum(sizes.get(path, 0) for path in others), (artifact.step or 0) * kind_of(job).step_bytes_min
        if has < needs:
            yield f"its files have {has} bytes, and {artifact.step} steps take at least {needs}"
    manifest = read_json(part, MANIFEST_NAME, MANIFEST_BYTES_MAX)
    known = {"step": artifact.step, "node_rank": part.node_rank, "nodes": artifact.parts_expected}
    leases = artifact.attempt.leases.filter(replaced_at=None, is_joining=False) if artifact.attempt else ()
    known["world_size"] = sum(lease.device_count for lease in leases)
    yield from _differences(MANIFEST_NAME, manifest, known)
    listed = manifest.get("files")
    announced = {(file["path"], file["size"], file["sha256"]) for file in part.files if file["path"] != MANIFEST_NAME}
    if not isinstance(listed, list) or {listed_entry(each) for each in listed} != announced:
        yield f"{MANIFEST_NAME} lists other files than there are"
    if part.node_rank != 0:
        return
    wanted = {METADATA_FILE, TRAINER_FILE, TOKENIZER_FILE} if others is None else set(others)
    if missing := sorted(wanted - sizes.keys()):
        yield f"it has no {missing[0]}"
    if others is None:
        yield from _trainer_mistakes(part, job, known)


def _trainer_mistakes(part: ArtifactPart, job: Job, known: Mapping[str, Any]) -> Iterator[str]:
    """What a training's own words in its checkpoint say that does not fit the job."""
    trainer = read_json(part, TRAINER_FILE, TRAINER_BYTES_MAX)
    yield from _differences(TRAINER_FILE, trainer, {name: known[name] for name in ("step", "world_size")})
    config, wanted = trainer.get("config"), kind_of(job).spec_kind.config(from_wire(job.spec))
    if not isinstance(config, dict):
        yield f"{TRAINER_FILE} names no configuration"
        return
    # A number that the job file leaves open is the model's, which is not known here; whoever resumes compares it.
    pinned = {name: wanted.get(name) for name in PINNED_SETTINGS if name in wanted or name not in OPEN_FIELDS}
    yield from _differences(TRAINER_FILE, config, pinned)


def _is_named(path: str, others: Mapping[str, int] | None) -> bool:
    """Whether our runtime writes a file of this name."""
    if others is None:
        return path in _NAMES or _SHARD.fullmatch(path) is not None
    return path == MANIFEST_NAME or path in others


def _differences(name: str, found: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    for key, value in known.items():
        if type(found.get(key)) is not type(value) or found.get(key) != value:
            yield f"{name} says {key} {found.get(key)!r:.60}, it is {value}"


def read_json(part: ArtifactPart, path: str, bytes_max: int) -> dict[str, Any]:
    """A small JSON file; empty for one that is none."""
    for index, file in enumerate(part.files):
        if file["path"] == path and file["size"] <= bytes_max:
            try:
                body = json.loads(get_store().read(key_for(part.artifact_id, part.node_rank, index), bytes_max))
            except (ValueError, RecursionError):
                return {}
            return body if isinstance(body, dict) else {}
    return {}


def listed_entry(listed: object) -> tuple[str, int, str] | None:
    """Path, size and SHA-256 of a file, as a manifest lists it; None for anything else."""
    if not isinstance(listed, dict):
        return None
    path, size, sha256 = (listed.get(name) for name in ("path", "size", "sha256"))
    if isinstance(path, str) and isinstance(size, int) and isinstance(sha256, str):
        return path, size, sha256
    return None


def _is_ours(job: Job) -> bool:
    """Whether our own runtime does it, whose checkpoints have a known shape."""
    return not job.spec.get("command")
