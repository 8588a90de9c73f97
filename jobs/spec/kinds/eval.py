"""`kind: eval`: tasks of lm-evaluation-harness asked of one model, or of several that are compared.

A model is a folder, a hub's id, or an endpoint: then the node asks it over the internet, with a key among the secrets.
The section has the keys of the built-in runtime with the bounds and defaults of `runtimes/evaluate/config.py`. Layers
above may not import a runtime, so the table is here, too; a test holds both to the same keys and defaults.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, Tag

from jobs.spec.document import Path
from jobs.spec.kinds.base import Finding, SpecKind, check_work, nodes_of
from jobs.spec.kinds.shared_folders import check_lent, is_lent, lent_paths
from jobs.spec.model import Spec
from jobs.spec.section import (
    MAPPING_TAG,
    TEXT_TAG,
    Section,
    Variable,
    listed,
    listed_models,
    text_or_mapping,
)
from jobs.spec.task_fields import TaskFields
from runtimes.contract import (
    ENDPOINT_CHARACTERS_MAX,
    ENDPOINT_KEY_PREFIX,
    endpoint_mistake,
    is_public_address,
    shipped_models,
)

MODELS_MAX = 8
CONCURRENCY_MAX = 32
ENDPOINTS_FEATURE: Final = "eval.endpoints"  # of a runtime that can ask one
PINNED: Final = re.compile(r".+@[0-9a-f]{40}")  # a hub's id with a commit, which nobody can change
PLAIN_TEXT: Final = r"^[ -~]+$"
ModelName = Annotated[str, Field(min_length=1, max_length=300)]
Check = Callable[[str, Mapping[str, Any], Path], Iterator[Finding]]


class EndpointSection(Section):
    """A model behind an OpenAI-compatible address."""

    endpoint: str = Field(
        min_length=1, max_length=ENDPOINT_CHARACTERS_MAX, description="an address such as https://HOST/v1"
    )
    model: str = Field(min_length=1, max_length=200, pattern=PLAIN_TEXT, description="the model's name at the endpoint")
    key: Variable | None = Field(None, description="a name among secrets, or null")
    chat: bool = Field(False, description="true or false")
    concurrency: int = Field(4, ge=1, le=CONCURRENCY_MAX, description=f"a whole number from 1 to {CONCURRENCY_MAX}")


Model = Annotated[
    Annotated[ModelName, Tag(TEXT_TAG)] | Annotated[EndpointSection, Tag(MAPPING_TAG)], Discriminator(text_or_mapping)
]


class EvalSection(TaskFields):
    """One evaluation as the built-in runtime does it."""

    models: Annotated[list[Model], BeforeValidator(listed_models), Field(min_length=1, max_length=MODELS_MAX)] = Field(
        description=f"a folder under files, lent/LABEL/..., a hub id or an endpoint, or a list of up to {MODELS_MAX}"
    )


class EvalSpec(SpecKind):
    """A job file with an `eval` section."""

    name = "eval"
    section = EvalSection
    section_expected = "a mapping with models and tasks"
    meaningless = ("train", "serve", "command", "setup", "requirements", "image", "outputs", "evaluation")

    def check(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """There is something to ask, on one node; models and tasks are among the files, or come from the hub."""
        if data.get("eval") is None:
            yield (), "nothing to evaluate: there is no eval section", "eval: {models: ..., tasks: ...}"
        resources, checkpoint = data.get("resources"), data.get("checkpoint")
        if nodes_of(resources)[1] > 1:
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
        return super().runtime_features(spec) | {"eval"} | ({ENDPOINTS_FEATURE} if endpoints_of(spec) else set())

    def runtime_secrets(self, spec: Spec) -> Mapping[str, str]:
        """The endpoints' keys: under a prefix, as a secret could be called PYTHONPATH."""
        keys = [each.key for each in endpoints_of(spec) if each.key is not None]
        return {ENDPOINT_KEY_PREFIX + key: key for key in keys}

    def lent_paths(self, spec: Spec) -> list[str]:
        """Of its models."""
        return lent_paths([each for each in eval_of(spec).models if isinstance(each, str)], spec.lent)

    def steps(self, spec: Spec) -> int | None:
        """Unknown before the tasks are read: what `work` declares only serves the quote."""
        return None


def eval_of(spec: Spec) -> EvalSection:
    """The `eval` section of a spec of this kind."""
    if not isinstance(spec.section, EvalSection):
        raise TypeError(f"a spec of kind {spec.kind} has no eval section")
    return spec.section


def endpoints_of(spec: Spec) -> list[EndpointSection]:
    """The endpoints among the models, in their order."""
    return [each for each in eval_of(spec).models if isinstance(each, EndpointSection)]


def _check_own_work(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Whoever knows how many requests there are and what one takes gets an expected cost in the quote."""
    yield from check_work(data)
    work = data.get("work")
    if isinstance(work, dict) and work.get("tokens") is not None:
        yield ("work", "tokens"), "means nothing for an evaluation", "steps (requests), with flops_per_step"


def _check_names(data: Mapping[str, Any]) -> Iterator[Finding]:
    section = data.get("eval")
    if isinstance(section, dict):
        for key, check in (("models", check_model), ("tasks", check_task)):
            yield from check_each(section.get(key), data, at=("eval", key), check=check)
        yield from _check_endpoints(section.get("models"), data)


def _check_endpoints(models: object, data: Mapping[str, Any]) -> Iterator[Finding]:
    """Each can be reached and its key is sent, and none is there twice."""
    each = listed_models(models)
    seen: list[tuple[object, object, object]] = []
    for index, found in enumerate(each if isinstance(each, list) else []):
        if not isinstance(found, dict):
            continue
        where: Path = ("eval", "models", index) if isinstance(models, list) else ("eval", "models")
        yield from _check_endpoint(found, data, where)
        address = found.get("endpoint")
        # Without the scheme, as results call it.
        bare = address.rstrip("/").partition("://")[2] if isinstance(address, str) else address
        asked = (bare, found.get("model"), bool(found.get("chat", False)))
        if asked in seen:
            yield where, "is asked twice", "each endpoint's model only once"
        seen.append(asked)


def _check_endpoint(found: Mapping[Any, Any], data: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    address, key, secrets = found.get("endpoint"), found.get("key"), listed(data.get("secrets"))
    if isinstance(address, str) and address:
        at = (*where, "endpoint")
        if mistake := endpoint_mistake(address, has_key=key is not None):
            yield at, mistake, "an address such as https://HOST/v1"
        elif _is_private(address):
            message = "is no address on the internet, and a job reaches nothing of its node's own network"
            yield at, message, "an address that others can reach"
        if data.get("network", "none") != "public":
            yield at, "is on the internet, and network is none", "network: public"
    if isinstance(key, str) and key not in (secrets if isinstance(secrets, list) else []):
        yield (*where, "key"), f"{key!r} is not among secrets", f"secrets: [..., {key}]"


def _is_private(address: str) -> bool:
    """Whether the host is an address that no rule of a node lets through; a name may still lead to one."""
    host = (urlsplit(address).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(OSError):  # 127.1, 0x7f.1 and 2130706433 are 127.0.0.1 to whoever connects
        host = socket.inet_ntoa(socket.inet_aton(host))
    with suppress(ValueError):
        return not is_public_address(host)
    return False


def check_each(names: object, data: Mapping[str, Any], *, at: Path, check: Check) -> Iterator[Finding]:
    """What is wrong with the names of models or tasks, and that none is there twice."""
    each = listed(names)
    for index, name in enumerate(each if isinstance(each, list) else []):
        if not isinstance(name, str) or not name:
            continue
        where = (*at, index) if isinstance(names, list) else at
        if name in each[:index]:
            yield where, f"{name!r} is named twice", "each only once"
        else:
            yield from check(name, data, where)


def check_model(name: str, data: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    """It has weights, and is among the files, in a shared host folder, or comes from the hub."""
    found = list(check_lent(name, data, where, may_be_hub=True))
    if found or is_lent(name, data):
        yield from found
    elif name in shipped_models():
        yield where, f"{name!r} is shipped without weights: there is nothing to evaluate", "a trained model"
    elif _is_sent(name, data) is False and data.get("network", "none") != "public":
        message = f"{name!r} is not among files, so it is fetched from the hub, and network is none"
        yield where, message, f"files: [..., {name}], or network: public"


def check_fetched_later(name: str, data: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    """What another job fetches from the hub again is the same then, and needs no secret: those go with this job."""
    if _is_sent(name, data) is not False or name in shipped_models() or is_lent(name, data):
        return
    if data.get("network") != "public":
        return
    if not PINNED.fullmatch(name):
        yield where, f"{name!r} may be another one on the hub when it is fetched again", f"{name}@COMMIT as train.model"
    if data.get("secrets"):
        message = f"{name!r} is fetched from the hub again, and the secrets go with the training"
        yield where, message, f"files: [..., {name}], or no secrets"


def check_task(name: str, data: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    """It is among the files."""
    if _is_sent(name, data) is False:
        yield where, f"{name!r} is not among files", f"files: [..., {name}]"


def _is_texts(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _is_sent(name: str, data: Mapping[str, Any]) -> bool | None:
    """Whether a path, or something below it, is among the files and inputs; None: they are not valid."""
    files, inputs = data.get("files", []), data.get("inputs")
    if not _is_texts(files):
        return None
    sent = {PurePosixPath(each) for each in listed(files)}
    if isinstance(inputs, dict):
        sent |= {PurePosixPath(folder) for folder in inputs if isinstance(folder, str)}
    path = PurePosixPath(name)
    return any(path.is_relative_to(each) or each.is_relative_to(path) for each in sent)
