"""`kind: train`: the built-in training runtime, or a training of the customer's own by a command.

The `train` section has the built-in runtime's keys with the bounds and defaults of `runtimes/train/config.py`.
Layers above may not import a runtime, so the table is here, too; a test holds both to the same keys and defaults.
Defaults are frozen into the canonical form: what was quoted is what runs, also after a default has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.spec.document import Path
from jobs.spec.kinds.base import Finding, SpecKind, check_own_command, check_work, is_count, nodes_of
from jobs.spec.kinds.eval import check_each, check_fetched_later, check_model, check_task
from jobs.spec.kinds.flops import flops_per_token
from jobs.spec.kinds.shared_folders import check_lent, lent_paths
from jobs.spec.model import FILES_MAX, INPUTS_MAX, Spec
from jobs.spec.section import Number, Section, listed
from jobs.spec.task_fields import TRAINED_FOLDER
from runtimes.contract import (
    S3_EXAMPLE,
    S3_VARIABLES,
    endpoint_mistake,
    is_s3_address,
    s3_address_mistake,
    shipped_model_config,
    shipped_models,
)
from runtimes.plan.advice import floor_bytes
from runtimes.plan.memory import Place
from runtimes.plan.reading import read_training
from runtimes.shapes.shape import ModelMistake

MIB = 1 << 20
STEPS_MAX = 10**9
BATCH_MAX = 1 << 16
SEQUENCE_MAX = 1 << 20
OF_SHIPPED_MODELS = {"learning_rate": 3e-3, "sequence_length": 128}

RANK_MAX = 1024
ALPHA_MAX = 65536
TARGETS_MAX = 256
EMA_MAX = 0.999999
PATIENCE_MAX = 10_000
MIN_DELTA_MAX = 1000
PROFILED_STEPS_MAX = 20
BETA_MAX = 100.0
ENDPOINT = "AWS_ENDPOINT_URL_S3"
Text = Annotated[str, Field(min_length=1, max_length=300)]


Target = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]


class LoraSection(Section):
    """Adapters that are trained in place of the model's weights."""

    rank: int = Field(16, ge=1, le=RANK_MAX, description=f"a whole number from 1 to {RANK_MAX}")
    alpha: Number = Field(32.0, gt=0, le=ALPHA_MAX, description=f"a number above 0 and at most {ALPHA_MAX}")
    dropout: Number = Field(0.0, ge=0, le=0.99, description="a number from 0 to 0.99")
    targets: Annotated[list[Target], BeforeValidator(listed), Field(min_length=1, max_length=TARGETS_MAX)] = Field(
        ["all-linear"], description="all-linear, a linear module's name or its end, or a list of them"
    )


class EarlyStopSection(Section):
    """When a training ends before its last step."""

    patience: int = Field(3, ge=1, le=PATIENCE_MAX, description=f"a whole number from 1 to {PATIENCE_MAX}")
    min_delta: Number = Field(0.0, ge=0, le=MIN_DELTA_MAX, description=f"a number from 0 to {MIN_DELTA_MAX}")
    export_best: bool = Field(False, description="true or false")


class ProfileSection(Section):
    """Which steps of an attempt are traced."""

    first_step: int = Field(10, ge=1, le=STEPS_MAX, description=f"a whole number from 1 to {STEPS_MAX}")
    steps: int = Field(3, ge=1, le=PROFILED_STEPS_MAX, description=f"a whole number from 1 to {PROFILED_STEPS_MAX}")


class DpoSection(Section):
    """Learning to prefer one of two answers to the other."""

    beta: Number = Field(0.1, gt=0, le=BETA_MAX, description=f"a number above 0 and at most {BETA_MAX:g}")


class TrainSection(Section):
    """One training as the built-in runtime does it; `work` is its amount."""

    model: Text = Field(
        "tiny-llama", description="a shipped model (tiny-llama), a folder under files, lent/LABEL/..., or a hub id"
    )
    data: Annotated[list[Text], BeforeValidator(listed), Field(min_length=1, max_length=FILES_MAX)] = Field(
        ["python-docs"],
        description="python-docs, a path under files, lent/LABEL/..., s3://bucket/..., or a list of these",
    )
    chat_template: Text | None = Field(None, description="a path under files, or null for the model's own template")
    train_on_inputs: bool = Field(False, description="true or false")
    packing: bool = Field(True, description="true or false")
    eval_fraction: Number = Field(0.05, gt=0, le=0.5, description="a number above 0 and at most 0.5")
    vocabulary_size: int | None = Field(
        None, ge=300, le=1_000_000, description="a whole number from 300 to 1000000, or null for the model's"
    )
    sequence_length: int | None = Field(
        None, ge=8, le=SEQUENCE_MAX, description=f"a whole number from 8 to {SEQUENCE_MAX}, or null for the model's"
    )
    global_batch_size: int = Field(16, ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}")
    micro_batch_size: int | None = Field(
        None, ge=1, le=BATCH_MAX, description=f"a whole number from 1 to {BATCH_MAX}, or null"
    )
    learning_rate: Annotated[Number, Field(gt=0, le=10)] | None = Field(
        None, description="a number above 0 and at most 10, or null for what suits new or trained weights"
    )
    warmup_steps: int = Field(20, ge=0, le=STEPS_MAX, description=f"a whole number from 0 to {STEPS_MAX}")
    weight_decay: Number = Field(0.1, ge=0, le=10, description="a number from 0 to 10")
    betas: Annotated[list[Annotated[Number, Field(ge=0, le=0.99999)]], Field(min_length=2, max_length=2)] = Field(
        [0.9, 0.95], description="two numbers from 0 to 0.99999"
    )
    gradient_clip: Number = Field(1.0, gt=0, le=1e6, description="a number above 0 and at most 1000000")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto, float32 or bfloat16")
    strategy: Literal["fsdp2", "hsdp", "ddp"] = Field("fsdp2", description="fsdp2, hsdp or ddp")
    shares: Literal["even", "measured"] = Field("even", description="even or measured")
    activation_checkpointing: Literal["none", "selective", "full"] = Field(
        "none", description="none, selective or full"
    )
    compile: bool = Field(False, description="true or false")
    offload: Literal["none", "all"] = Field("none", description="none or all")
    lora: LoraSection | None = Field(
        None, description="a mapping of rank, alpha, dropout and targets, {} for their defaults, or null"
    )
    ema: Annotated[Number, Field(gt=0, le=EMA_MAX)] | None = Field(
        None, description=f"a number above 0 and at most {EMA_MAX}, or null"
    )
    early_stop: EarlyStopSection | None = Field(
        None, description="a mapping of patience, min_delta and export_best, {} for their defaults, or null"
    )
    deterministic: bool = Field(False, description="true or false")
    profile: ProfileSection | None = Field(
        None, description="a mapping of first_step and steps, {} for their defaults, or null"
    )
    quantize: Literal["nf4"] | None = Field(None, description="nf4, with lora alone, or null")
    dpo: DpoSection | None = Field(None, description="a mapping of beta, {} for its default, or null")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="a whole number from 0")
    evaluate_every: int = Field(100, ge=0, le=STEPS_MAX, description=f"a whole number from 0 to {STEPS_MAX}")
    sample_every: int = Field(0, ge=-1, le=STEPS_MAX, description=f"a whole number from -1 to {STEPS_MAX}")
    sample_prompt: str = Field("The ", max_length=2000, description="a text of at most 2000 characters")
    log_every: int = Field(1, ge=1, le=STEPS_MAX, description=f"a whole number from 1 to {STEPS_MAX}")
    log_samples: bool = Field(False, description="true or false")

    @property
    def tokens_per_step(self) -> int | None:
        """None where a sequence's length is the model's. With `dpo` a batch counts pairs of sequences."""
        if self.sequence_length is None:
            return None
        return self.global_batch_size * (1 if self.dpo is None else 2) * self.sequence_length

    @model_validator(mode="before")
    @classmethod
    def _choices_for_a_shipped_model(cls, data: Any) -> Any:
        """What is left open for other models: specs from before it could be keep their hash."""
        if not isinstance(data, dict):
            return data
        model = data.get("model", cls.model_fields["model"].default)
        if not isinstance(model, str) or model not in shipped_models():
            return data
        return data | {key: value for key, value in OF_SHIPPED_MODELS.items() if data.get(key) is None}


# That the first runtimes did not have, or whose default was another.
LATER_FIELDS = (
    *("strategy", "shares", "activation_checkpointing", "compile", "offload", "lora", "quantize", "dpo"),
    *("learning_rate", "sequence_length", "chat_template", "train_on_inputs", "packing"),
    *("ema", "early_stop", "deterministic", "profile"),
)
# Numbers that may be left open; a runtime from before that would call them missing.
OPEN_FIELDS = ("learning_rate", "sequence_length")


class TrainSpec(SpecKind):
    """A job file with a `train` section; or, as before `kind: command` was there, with a command in its place."""

    name = "train"
    section = TrainSection
    section_expected = "a mapping of the built-in runtime's keys"
    misplaced = {"tokens": "work", "steps": "work"}
    may_grow = True

    def check(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """One of train and command; what each of them needs of `work`, and the sizes of a batch."""
        has_train, has_command = data.get("train") is not None, data.get("command") is not None
        if has_train and has_command:
            yield ("command",), "stands beside train", "one of train and command"
        if not has_train and not has_command:
            yield (), "nothing to do: neither train nor command is given", "one of train and command"
        if data.get("image") is not None and not has_command:
            expected = "a command, or no image: the built-in runtime brings its own"
            yield ("image",), "is given without a command", expected
        if data.get("outputs") is not None and not has_command:
            yield ("outputs",), "is given without a command: the built-in runtime writes below output/", "no such field"
        for name in ("setup", "requirements"):
            if data.get(name) is not None and not has_command:
                message = "is given without a command: the built-in runtime brings all that it needs"
                yield (name,), message, "no such field"
        checkpoint = data.get("checkpoint")
        if isinstance(checkpoint, dict) and checkpoint.get("path") is not None and not has_command:
            message = "is given without a command: the built-in runtime saves its checkpoints by itself"
            yield ("checkpoint", "path"), message, "no such field"
        yield from check_own_command(data) if has_command else check_work(data)
        work = data.get("work")
        if work is None and has_train:
            expected = "work: {tokens: ...} or work: {steps: ...}"
            yield ("work",), "is missing: the built-in runtime needs an end", expected
        if isinstance(work, dict) and work.get("flops_per_step") is not None and not has_command:
            message = "is for an own command; the built-in runtime reckons it itself"
            yield ("work", "flops_per_step"), message, "no such field"
        yield from _check_batches(data)
        yield from _check_lent(data)
        yield from _check_s3(data)
        yield from _check_adapters(data)
        yield from _check_choices(data)
        yield from _check_preferences(data)
        yield from _check_offload(data)
        yield from _check_evaluation(data)

    def canonical_section(self, section: Section) -> dict[str, Any]:
        """With every default but those of later fields: specs from before these keep their hash, and runtimes from
        before them their configuration.
        """
        body = section.model_dump()
        return {key: value for key, value in body.items() if key not in LATER_FIELDS or not _is_default(key, value)}

    def config(self, spec: Spec) -> dict[str, Any]:
        """The section and the declared work; empty for an own command."""
        if spec.section is None:
            return {}
        work = spec.work.model_dump(include={"tokens", "steps"}, exclude_none=True) if spec.work else {}
        return {**self.canonical_section(spec.section), **work}

    def dtype(self, spec: Spec) -> str:
        """The section's; `auto` for an own command."""
        train = train_of(spec)
        return train.dtype if train else "auto"

    def runtime_features(self, spec: Spec) -> frozenset[str]:
        """Every strategy but the first, and later fields; a runtime that knows none would call the job file wrong."""
        train, own = train_of(spec), super().runtime_features(spec)
        if train is None:
            return own
        used = {key: getattr(train, key) for key in LATER_FIELDS if not _is_default(key, getattr(train, key))}
        names = {value if key == "strategy" else key for key, value in used.items() if key not in OPEN_FIELDS}
        names |= {f"open_{key}" for key in OPEN_FIELDS if getattr(train, key) is None}
        names |= {"s3_data"} if reads_s3(train) else set()
        return own | {f"train.{name}" for name in names}

    def runtime_variables(self, spec: Spec) -> frozenset[str]:
        """Those by which data on S3 are reached, of a training that has such data."""
        train = train_of(spec)
        return S3_VARIABLES if train is not None and reads_s3(train) else frozenset()

    def lent_paths(self, spec: Spec) -> list[str]:
        """Of its model, its data and its chat template."""
        train = train_of(spec)
        return [] if train is None else lent_paths([train.model, *train.data, train.chat_template], spec.lent)

    def steps(self, spec: Spec) -> int | None:
        """Tokens are rounded up to whole steps, as the runtime does. None where a sequence's length is the model's."""
        train = train_of(spec)
        if spec.work is None or spec.work.steps is not None or spec.work.tokens is None or train is None:
            return super().steps(spec)
        if train.tokens_per_step is None:
            return None
        return -(-spec.work.tokens // train.tokens_per_step)

    def flops(self, spec: Spec) -> float | None:
        """Of a shipped model by its configuration; of another one nothing is known here."""
        train, tokens = train_of(spec), training_tokens(spec)
        if train is None or tokens is None:
            return super().flops(spec)
        if train.model not in shipped_models() or train.sequence_length is None:
            return None
        config = shipped_model_config(train.model)
        if train.vocabulary_size is not None:
            config = {**config, "vocab_size": train.vocabulary_size}
        return flops_per_token(config, sequence_length=train.sequence_length) * tokens

    def memory_floor_mib(self, spec: Spec) -> int:
        """Of a shipped model by its configuration; of another one nothing is known here."""
        train = train_of(spec)
        if train is None or train.model not in shipped_models():
            return 0
        try:
            shipped = shipped_model_config(train.model)
            shape, config = read_training(self.config(spec), shipped, is_shipped=True, has_weights=False)
            gpus = spec.resources.gpus
            places = [Place(gpus * nodes, nodes=nodes) for nodes in node_counts(spec)]
            return max(floor_bytes(shape, config, place) for place in places) // MIB
        except ModelMistake:  # a spec from before, with what the runtime refuses now
            return 0

    def shows_events(self, canonical: Mapping[str, Any]) -> bool:
        """The built-in runtime's events do; an own command's log is shown beside what it reports."""
        return canonical.get(self.name) is not None


def train_of(spec: Spec) -> TrainSection | None:
    """The `train` section; None where the job runs an own command."""
    return spec.section if isinstance(spec.section, TrainSection) else None


def reads_s3(train: TrainSection) -> bool:
    """Whether any of its data are on S3, whose owner may change them at any time."""
    return any(is_s3_address(name) for name in train.data)


def node_counts(spec: Spec) -> list[int]:
    """Of how many nodes the memory of a training is to be reckoned, the fewest first: no other size of its gang needs
    more on a device.

    With more ranks a rank has less to hold, but its micro-batch may be larger: 5 sequences at most 4 at a time are 3
    and 2, and 4 sequences are 4. So it is the fewest nodes of each number of sequences that a rank may have.
    """
    train, resources = train_of(spec), spec.resources
    if train is None:
        return [resources.nodes]
    counts: dict[int, int] = {}
    for nodes in range(resources.nodes, resources.nodes_max + 1):
        counts.setdefault(-(-train.global_batch_size // (resources.gpus * nodes)), nodes)
    return list(counts.values())


def training_tokens(spec: Spec) -> int | None:
    """Tokens that the built-in runtime trains on: whole steps of `global_batch_size` sequences. None: unknown here."""
    train, steps = train_of(spec), TrainSpec().steps(spec)
    if steps is None or train is None or train.tokens_per_step is None:
        return None
    return steps * train.tokens_per_step


def _is_default(key: str, value: Any) -> bool:
    return bool(value == TrainSection.model_fields[key].default)


def _check_adapters(data: Mapping[str, Any]) -> Iterator[Finding]:
    train = data.get("train")
    if not isinstance(train, dict):
        return
    if train.get("quantize") is not None and train.get("lora") is None:
        message = "keeps frozen weights in 4 bits, and without lora none is frozen"
        yield ("train", "quantize"), message, "lora: {} beside it, or no such field"
    if train.get("quantize") is not None and train.get("compile") is True:
        yield ("train", "quantize"), "stands beside compile: true", "one of them"
    if train.get("lora") is None:
        return
    model = train.get("model", TrainSection.model_fields["model"].default)
    if isinstance(model, str) and model in shipped_models():
        message = f"trains adapters beside a model's weights, and {model} is shipped without any"
        yield ("train", "lora"), message, "a model with weights: a folder under files or a hub id"


def _check_choices(data: Mapping[str, Any]) -> Iterator[Finding]:
    train = data.get("train")
    if not isinstance(train, dict):
        return
    if train.get("early_stop") is not None and train.get("evaluate_every") == 0:
        yield ("train", "early_stop"), "needs evaluations during the training", "an evaluate_every of 1 or more"
    if train.get("deterministic") is True and train.get("shares") == "measured":
        yield ("train", "deterministic"), "contradicts shares: measured, which are others each time", "shares: even"


def _check_lent(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Paths in shared host folders."""
    train = data.get("train")
    if not isinstance(train, dict):
        return
    for key, where, name in _paths(train):
        yield from check_lent(name, data, where, may_be_hub=key == "model")


def _check_s3(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Addresses of data on S3, which the program itself reads over the internet."""
    train = data.get("train")
    if not isinstance(train, dict):
        return
    for key, where, name in _paths(train):
        if not is_s3_address(name):
            continue
        mistake = s3_address_mistake(name)
        if key != "data":
            yield where, f"{name!r} is on S3, and data alone is read from there", "a path under files"
        elif mistake is not None:
            yield where, f"{name!r} {mistake}", "s3://bucket/folder"
        elif data.get("network", "none") != "public":
            yield where, f"{name!r} is read by the program itself, and network is none", "network: public"
    env, secrets = data.get("env"), listed(data.get("secrets"))
    names = [*(env if isinstance(env, dict) else ()), *(secrets if isinstance(secrets, list) else ())]
    address = env.get(ENDPOINT) if isinstance(env, dict) else None
    if isinstance(address, str) and address and any(is_s3_address(name) for _, _, name in _paths(train)):
        mistake = endpoint_mistake(address, has_key="AWS_ACCESS_KEY_ID" in names, example=S3_EXAMPLE)
        if mistake is not None:
            yield ("env", ENDPOINT), mistake, f"an address such as {S3_EXAMPLE}"


def _paths(train: Mapping[str, Any]) -> Iterator[tuple[str, Path, str]]:
    """Each path of a raw `train` section: its key, where it stands, and what it is."""
    for key in ("model", "data", "chat_template"):
        given, each = train.get(key), listed(train.get(key))
        for index, name in enumerate(each if isinstance(each, list) else []):
            if isinstance(name, str):
                yield key, ("train", key, index) if isinstance(given, list) else ("train", key), name


def _check_preferences(data: Mapping[str, Any]) -> Iterator[Finding]:
    train = data.get("train")
    if isinstance(train, dict) and train.get("dpo") is not None and train.get("train_on_inputs") is True:
        yield ("train", "train_on_inputs"), "is true, and dpo compares answers alone", "false"


def _check_offload(data: Mapping[str, Any]) -> Iterator[Finding]:
    train = data.get("train")
    if isinstance(train, dict) and train.get("offload") == "all" and train.get("strategy") == "ddp":
        message = "is all, and ddp keeps the whole model on each device"
        yield ("train", "offload"), message, "none, or strategy: fsdp2 or hsdp"


def _check_evaluation(data: Mapping[str, Any]) -> Iterator[Finding]:
    """What follows a training can be asked, and paid for, without anybody being there."""
    evaluation, train, payment = data.get("evaluation"), data.get("train"), data.get("payment")
    if evaluation is None:
        return
    if data.get("command") is not None:
        message = "follows the built-in training, and nobody knows where a command leaves its model"
        yield ("evaluation",), message, "a train section, or no such field"
    if isinstance(payment, dict) and payment.get("mode") == "escrow":
        message = "is a job of its own, and payment.mode is escrow: your wallet would have to sign its hold later"
        yield ("evaluation",), message, "mode: credits, or no such field"
    yield from _check_trained_folder(data)
    if not isinstance(evaluation, dict):
        return
    yield from check_each(evaluation.get("tasks"), data, at=("evaluation", "tasks"), check=check_task)
    if evaluation.get("compare_with_base") is True and isinstance(train, dict):
        base = train.get("model", TrainSection.model_fields["model"].default)
        where = ("evaluation", "compare_with_base")
        if isinstance(base, str) and PurePosixPath(base).parts[:1] == (TRAINED_FOLDER,):
            yield where, f"{base!r} could be what the training leaves below {TRAINED_FOLDER}/", "a copy of another name"
        elif isinstance(base, str) and base:
            yield from check_model(base, data, where)
            yield from check_fetched_later(base, data, where)


def _check_trained_folder(data: Mapping[str, Any]) -> Iterator[Finding]:
    """The evaluation has the training's files and inputs, and beside them a folder with its result."""
    inputs, files = data.get("inputs"), listed(data.get("files"))
    if isinstance(inputs, dict) and len(inputs) >= INPUTS_MAX:
        message = (
            f"leaves no room for the training's result among the evaluation's inputs, of which {INPUTS_MAX} may be"
        )
        yield ("inputs",), message, f"at most {INPUTS_MAX - 1}"
    message, expected = "is where the evaluation finds the training's result", "another name"
    if isinstance(inputs, dict) and TRAINED_FOLDER in inputs:
        yield ("inputs", TRAINED_FOLDER), message, expected
    for index, name in enumerate(files if isinstance(files, list) else []):
        if isinstance(name, str) and PurePosixPath(name).parts[:1] == (TRAINED_FOLDER,):
            where = ("files", index) if isinstance(data["files"], list) else ("files",)
            yield where, f"{TRAINED_FOLDER} {message}", expected


def _check_batches(data: Mapping[str, Any]) -> Iterator[Finding]:
    train, resources = data.get("train"), data.get("resources", {})
    if not isinstance(train, dict):
        return
    batch, micro = train.get("global_batch_size", 16), train.get("micro_batch_size")
    if is_count(batch) and is_count(micro) and micro > batch:
        path = ("train", "micro_batch_size")
        yield path, f"{micro} is more than global_batch_size, which is {batch}", f"at most {batch}"
    gpus, nodes = resources.get("gpus", 1) if isinstance(resources, dict) else 1, nodes_of(resources)[1]
    if is_count(batch) and is_count(gpus) and gpus * nodes > batch:
        message = f"{batch} sequences a step are too few for {gpus * nodes} devices"
        yield ("train", "global_batch_size"), message, f"at least {gpus * nodes}, one a device"
