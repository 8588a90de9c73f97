"""`kind: eval`: tasks of lm-evaluation-harness asked of one model, or of several that are compared.

The section has the keys of the built-in runtime with the bounds and defaults of `runtimes/evaluate/config.py`. Layers
above may not import a runtime, so the table is here, too; a test holds both to the same keys and defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from jobs.spec.kinds.base import Finding, SpecKind, check_work, is_count
from jobs.spec.model import Spec
from jobs.spec.section import FilePath, Section, listed
from runtimes.contract import shipped_models

MODELS_MAX = 8
TASKS_MAX = 64
LIMIT_MAX = 1_000_000
BATCH_MAX = 1024
FEWSHOT_MAX = 100
ModelName = Annotated[str, Field(min_length=1, max_length=300)]
TaskPath = Annotated[FilePath, Field(max_length=300)]


class EvalSection(Section):
    """One evaluation as the built-in runtime does it."""

    models: Annotated[list[ModelName], BeforeValidator(listed), Field(min_length=1, max_length=MODELS_MAX)] = Field(
        description=f"a folder under files or a hub id, or a list of up to {MODELS_MAX}"
    )
    tasks: Annotated[list[TaskPath], BeforeValidator(listed), Field(min_length=1, max_length=TASKS_MAX)] = Field(
        description=f"a task file or a folder of them under files, or a list of up to {TASKS_MAX}"
    )
    limit: int | None = Field(
        None, ge=1, le=LIMIT_MAX, description=f"a whole number from 1 to {LIMIT_MAX}, or null for all samples"
    )
    batch_size: int = Field(8, ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}")
    num_fewshot: int | None = Field(
        None, ge=0, le=FEWSHOT_MAX, description=f"a whole number from 0 to {FEWSHOT_MAX}, or null for the task file's"
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="a whole number from 0")
    dtype: Literal["float32", "bfloat16", "float64"] = Field("float32", description="float32, bfloat16 or float64")
    map: bool = Field(True, description="true or false")


class EvalSpec(SpecKind):
    """A job file with an `eval` section."""

    name = "eval"
    section = EvalSection
    section_expected = "a mapping with models and tasks"
    meaningless = ("train", "serve", "command", "setup", "requirements", "image", "outputs")

    def check(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """There is something to ask, on one node; models and tasks are among the files, or come from the hub."""
        if data.get("eval") is None:
            yield (), "nothing to evaluate: there is no eval section", "eval: {models: ..., tasks: ...}"
        resources, checkpoint = data.get("resources"), data.get("checkpoint")
        if isinstance(resources, dict) and is_count(resources.get("nodes")) and resources["nodes"] > 1:
            yield ("resources", "nodes"), "is more than 1, and an evaluation is on one node", "nodes: 1, with more gpus"
        if isinstance(checkpoint, dict) and checkpoint.get("path") is not None:
            message = "is given without a command: the built-in runtime saves its checkpoints by itself"
            yield ("checkpoint", "path"), message, "no such field"
        yield from _check_own_work(data)
        yield from _check_names(data)

    def canonical_section(self, section: Section) -> dict[str, Any]:
        """With every default: what was quoted is what runs, also after a default has changed."""
        return section.model_dump()

    def config(self, spec: Spec) -> dict[str, Any]:
        """The section as it is."""
        return self.canonical_section(eval_of(spec))

    def dtype(self, spec: Spec) -> str:
        """The section's; nodes are not measured in float64, which all of them can compute."""
        found = eval_of(spec).dtype
        return "auto" if found == "float64" else found

    def runtime_features(self, spec: Spec) -> frozenset[str]:
        """Nodes whose runtime has no harness are passed over."""
        return super().runtime_features(spec) | {"eval"}

    def steps(self, spec: Spec) -> int | None:
        """Unknown before the tasks are read: what `work` declares only serves the quote."""
        return None


def eval_of(spec: Spec) -> EvalSection:
    """The `eval` section of a spec of this kind."""
    if not isinstance(spec.section, EvalSection):
        raise TypeError(f"a spec of kind {spec.kind} has no eval section")
    return spec.section


def _check_own_work(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Whoever knows how many requests there are and what one takes gets an expected cost in the quote."""
    yield from check_work(data)
    work = data.get("work")
    if isinstance(work, dict) and work.get("tokens") is not None:
        yield ("work", "tokens"), "means nothing for an evaluation", "steps (requests), with flops_per_step"


def _check_names(data: Mapping[str, Any]) -> Iterator[Finding]:
    section, files = data.get("eval"), data.get("files", [])
    sent = {PurePosixPath(name) for name in listed(files) if isinstance(name, str)} if _is_texts(files) else None
    if not isinstance(section, dict) or sent is None:
        return
    for key in ("models", "tasks"):
        names = listed(section.get(key))
        if not isinstance(names, list):
            continue
        for index, name in enumerate(names):
            if not isinstance(name, str) or not name:
                continue
            where = ("eval", key, index) if isinstance(section[key], list) else ("eval", key)
            if name in names[:index]:
                yield where, f"{name!r} is named twice", "each only once"
            elif key == "models" and name in shipped_models():
                yield where, f"{name!r} is shipped without weights: there is nothing to evaluate", "a trained model"
            elif _is_sent(name, sent):
                continue
            elif key == "tasks":
                yield where, f"{name!r} is not among files", f"files: [..., {name}]"
            elif data.get("network", "none") != "public":
                message = f"{name!r} is not among files, so it is fetched from the hub, and network is none"
                yield where, message, f"files: [..., {name}], or network: public"


def _is_texts(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _is_sent(name: str, sent: set[PurePosixPath]) -> bool:
    """Whether a path, or something below it, is among the files."""
    path = PurePosixPath(name)
    return any(path.is_relative_to(each) or each.is_relative_to(path) for each in sent)
