"""The evaluation that follows a training: the job file that it is quoted and submitted with.

It is built when the training has completed, from nothing but what the training's own file says: so whoever submitted
that file agreed to all of it, its budget included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobs.spec.canonical import canonical
from jobs.spec.kinds.shared_folders import lent_paths
from jobs.spec.model import NAME_CHARACTERS_MAX, Spec
from jobs.spec.parse import from_wire
from jobs.spec.task_fields import TRAINED_FOLDER
from runtimes.contract import lent_label

NAME_ENDING: Final = "-evaluation"
# What both have. Not `secrets`, which are erased with the training, and not `checkpoint` or `work`.
SHARED_KEYS: Final = ("payment", "retry", "env", "files", "network")


def name_after(training_name: str) -> str:
    """`tiny-evaluation` of `tiny`, cut to what a name may have."""
    return training_name[: NAME_CHARACTERS_MAX - len(NAME_ENDING)] + NAME_ENDING


def evaluation_after(training: Spec, *, job: str, inputs: Mapping[str, Mapping[str, Any]]) -> Spec:
    """The spec of the evaluation that follows a training with the id `job`; raises SpecErrors where none is possible.

    `inputs`: folder -> whose result, or which version of a volume, the training had there, as job files name it.
    """
    body, section = canonical(training), training.evaluation
    if section is None:
        raise ValueError(f"no evaluation follows {training.name}")
    asked: dict[str, Any] = body["evaluation"]
    budget: dict[str, Any] = asked.pop("budget")
    if hourly := body["budget"].get("max_per_gpu_hour"):
        budget.setdefault("max_per_gpu_hour", hourly)
    models = [f"{TRAINED_FOLDER}/model"]
    if asked.pop("compare_with_base"):
        models.insert(0, body["train"]["model"])
    # Of shared host folders only that of the base: the evaluation needs no node that has the training's data.
    labels = [lent_label(name) for name in lent_paths(models, training.lent)]
    given = {folder: dict(each) for folder, each in inputs.items()} | {TRAINED_FOLDER: {"job": job}}
    following: dict[str, Any] = {
        "kind": "eval",
        "name": name_after(training.name),
        "resources": body["resources"] | {"nodes": 1},
        "budget": budget,
        "inputs": given,
        "eval": {"models": models, **asked},
    }
    if labels:
        following["lent"] = labels
    return from_wire(following | {key: body[key] for key in SHARED_KEYS if key in body})
