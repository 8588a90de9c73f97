"""What a training takes, reckoned on this computer before anything is asked of a marketplace.

The model's configuration is that of a shipped model, of a folder among the job's files, or of the file that
`--model-config` names; of a hub id nothing is fetched here.
"""

from __future__ import annotations

import posixpath
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jobs.client.errors import NothingFits, UsageMistake
from jobs.spec import Spec, TrainSection, kind_of
from jobs.spec.kinds.shared_folders import lent_paths
from jobs.spec.kinds.train import node_counts, training_tokens
from jobs.spec.units import MEMORY_MIB_MAX
from jobs.wire import PlanChecks, QuoteView
from runtimes.contract import lent_label, shipped_model_config, shipped_models
from runtimes.plan.advice import Advice, Fit, advise, floor_bytes, needed_bytes
from runtimes.plan.devices import REPORTED_MAX, have_bfloat16, memory_of_models
from runtimes.plan.memory import Memory, Place, host_bytes, reckon_memory
from runtimes.plan.reading import Settings, method_of, read_model_config, read_training
from runtimes.plan.step_time import Speed, StepTime, reckon_step
from runtimes.shapes.shape import ModelMistake, ModelShape, flops_per_token

if TYPE_CHECKING:
    from jobs.client.sdk import Souk

MIB: Final = 1 << 20
MODEL_CONFIG: Final = "config.json"
PARTS: Final = ("weights", "moments", "copies", "gradients", "gathered", "activations", "working", "allocator")


@dataclass(frozen=True)
class TrainingPlan:
    """Of one training; `problem` where nothing could be reckoned, with what to do, and then nothing else is known."""

    problem: str = ""
    model: str = ""
    family: str = ""
    parameters: int = 0
    trained_parameters: int = 0
    flops_per_token: float = 0.0
    flops: float | None = None  # of all tokens, where their number is known
    ranks: int = 1
    nodes_max: int = 1  # that it may grow to; no more than it is placed on, where it does not
    sequence_length: int = 0
    memory: Memory | None = None
    needed_bytes: int = 0  # of a device
    host_bytes: int = 0  # of each node's memory, with what it keeps in the devices' place
    floor_bytes: int = 0  # of a device: with less it runs out of memory for certain
    device_bytes: int | None = None  # of a device, where the job file says something: its `memory`, or its `models`
    largest_bytes: int | None = None  # that a device of its `models` can have, where all of them are known
    advice: Advice | None = None  # where `device_bytes` is known
    steps: int | None = None  # where their number is known
    tokens_per_step: int = 0
    shape: ModelShape | None = None
    config: Settings | None = None


@dataclass(frozen=True)
class StepPlan:
    """How long a training takes at one place of a quote; and how far such plans were off, where that is known."""

    device_model: str
    step: StepTime
    tokens_per_second: float
    total_seconds: float | None  # of all steps, evaluations and checkpoints not counted; None: their number is open
    checks: PlanChecks | None = None


def plan_training(spec: Spec, folder: Path, *, model_config: Path | None = None) -> TrainingPlan | None:
    """Of a job file in `folder`; None where it does not train by the built-in runtime.

    Raises UsageMistake for a `model_config` that cannot be used: it was named for this.
    """
    train = spec.section
    if not isinstance(train, TrainSection):
        if model_config is not None:
            raise UsageMistake("--model-config is for a job file with a train section: this one has none.")
        return None
    try:
        found = _find_config(spec, train.model, folder, model_config)
        shape, config = read_training(
            kind_of(spec).config(spec), found.content, is_shipped=found.is_shipped, has_weights=found.has_weights
        )
        return _reckon(spec, shape, config)
    except ModelMistake as mistake:
        if model_config is not None:
            raise UsageMistake(f"{model_config}: {mistake}") from mistake
        return TrainingPlan(problem=str(mistake), model=train.model)


def plan_step(plan: TrainingPlan | None, quote: QuoteView) -> StepPlan | None:
    """At the place that the quote chose; None where nothing fits, or a figure is missing that it takes.

    From an older marketplace, which does not say what its devices were measured to do, there is none.
    """
    chosen = next((each for each in quote.plan.candidates if each.is_chosen), None)
    if plan is None or plan.shape is None or plan.config is None or chosen is None:
        return None
    try:
        place = Place(
            chosen.devices,
            nodes=len(chosen.node_ids),
            memory_bytes=chosen.device_memory_mib * MIB,
            is_gpu=chosen.device_kind == "gpu",
            has_bfloat16=have_bfloat16([chosen.device_model]),
        )
        speed = Speed(
            chosen.device_flops_per_second,
            chosen.device_memory_bytes_per_second,
            nodes=chosen.link_bytes_per_second,
            round_trip=chosen.link_round_trip_seconds,
        )
        step = reckon_step(plan.shape, plan.config, place, speed)
    except ModelMistake:
        return None
    return StepPlan(
        chosen.device_model,
        step,
        tokens_per_second=plan.tokens_per_step / step.seconds,
        total_seconds=None if plan.steps is None else plan.steps * step.seconds,
    )


def with_checks(found: StepPlan, plan: TrainingPlan, quote: QuoteView, souk: Souk) -> StepPlan:
    """The same with how far plans of trainings like it were off; without it where the marketplace does not know."""
    chosen = next(each for each in quote.plan.candidates if each.is_chosen)
    config = plan.config
    if config is None:
        return found
    asked: dict[str, Any] = {
        "device_kind": chosen.device_kind,
        "device_model": chosen.device_model,
        "method": method_of(config),
        "is_shared": str(chosen.devices > 1).lower(),
        "family": plan.family,
        "parameters": str(plan.parameters),
    }
    return replace(found, checks=souk.plan_checks(asked))


def require_memory(plan: TrainingPlan | None) -> None:
    """Raise NothingFits where the training would run out of memory for certain on each device that the job file names.

    With the nearest settings that fit. A job file's `memory` is what a device must have at least: larger ones may fit.
    """
    if plan is None or plan.largest_bytes is None or plan.largest_bytes >= plan.floor_bytes:
        return
    raise NothingFits(
        f"The training needs {gigabytes(plan.needed_bytes)} on each device, and would run out of memory on every model "
        f"of device that the job file names. {nearest_text(plan)}",
        {"training": plan_json(plan)},
    )


def with_memory_floor(spec: Spec, plan: TrainingPlan | None) -> Spec:
    """The spec that asks for at least the memory below which the training cannot run.

    The marketplace sees no configuration but those of shipped models; what is known here it is told in this way.
    """
    if plan is None or plan.memory is None or plan.model in shipped_models():
        return spec
    floor_mib = min(plan.floor_bytes // MIB, MEMORY_MIB_MAX)
    if floor_mib <= spec.resources.memory_mib:
        return spec
    resources = spec.resources.model_copy(update={"memory_mib": floor_mib})
    return spec.model_copy(update={"resources": resources})


def without_less_memory(quote: QuoteView, asked: Spec, sent: Spec) -> QuoteView:
    """The quote without the advice to ask for less memory than the training needs: what was added is needed."""
    if asked is sent:
        return quote
    fixes = [fix for fix in quote.plan.fixes if fix.field != "resources.memory"]
    return quote.model_copy(update={"plan": quote.plan.model_copy(update={"fixes": fixes})})


def nearest_text(plan: TrainingPlan) -> str:
    """What would fit, in a sentence; how much memory is needed where no setting helps."""
    advice = plan.advice
    if advice is None or advice.fits:
        return ""
    ways = [settings_text(fit) for fit in advice.nearest]
    if advice.ranks is not None:
        ways.append(f"{advice.ranks} devices in all")
    ways.append(f"devices of {gigabytes(plan.needed_bytes)}")
    return "Would fit: " + "; or ".join(ways) + "."


def settings_text(fit: Fit) -> str:
    """As the job file's `train` section has them: `activation_checkpointing: full and micro_batch_size: 2`."""
    text = " and ".join(f"{key}: {value}" for key, value in fit.settings)
    return f"{text} (with {gigabytes(fit.host_bytes)} of each node's memory)" if fit.host_bytes else text


def gigabytes(count: int) -> str:
    """`24.0 GB`, of 10^9 bytes, rounded up: as a job file's memory is written."""
    return f"{-(-count // 10**8) / 10:.1f} GB"


def plan_json(plan: TrainingPlan) -> dict[str, Any]:
    """All of it as JSON, bytes as whole numbers."""
    body = asdict(replace(plan, shape=None, config=None))
    del body["shape"], body["config"]
    memory, advice = plan.memory, plan.advice
    body["memory"] = None if memory is None else asdict(memory) | {"peak": memory.peak}
    body["advice"] = None
    if advice is not None:
        nearest = [
            {"settings": dict(fit.settings), "peak": fit.memory.peak, "slowdown": round(fit.slowdown, 3)}
            | {"host_bytes": fit.host_bytes}
            for fit in advice.nearest
        ]
        body["advice"] = {
            "fits": advice.fits,
            "is_certain": advice.is_certain,
            "nearest": nearest,
            "ranks": advice.ranks,
        }
    return body


def step_json(found: StepPlan) -> dict[str, Any]:
    """As JSON: seconds, tokens a second, parts."""
    body = asdict(replace(found, checks=None))
    body["checks"] = None if found.checks is None else found.checks.model_dump(mode="json")
    return body


@dataclass(frozen=True)
class _Found:
    content: object
    is_shipped: bool = False
    has_weights: bool = True


def _find_config(spec: Spec, model: str, folder: Path, given: Path | None) -> _Found:
    """The model's configuration; raises ModelMistake that says what to do."""
    if given is not None:
        return _Found(read_model_config(given))
    if model in shipped_models():
        return _Found(shipped_model_config(model), is_shipped=True, has_weights=False)
    if lent_paths([model], spec.lent):
        raise ModelMistake(
            f"the configuration of {model} is in the shared host folder {lent_label(model)}, which this computer does "
            "not see. To plan with a copy of it: souk plan --model-config FILE"
        )
    try:
        root = folder.resolve()
        path = (root / model / MODEL_CONFIG).resolve()
        if path.is_relative_to(root) and path.is_file() and _is_sent(spec, path.relative_to(root)):
            return _Found(read_model_config(path), has_weights=any(path.parent.glob("*.safetensors")))
    except (OSError, ValueError) as error:  # a name that no file can have
        if isinstance(error, ModelMistake):
            raise
    if (source := spec.inputs.get(posixpath.normpath(model).partition("/")[0])) is not None:
        of_volume = f"in the volume {source.volume}. To plan with it: souk volumes get {source.volume}"
        of_job = f"in what the job {source.job} left. To plan with it: souk download {source.job}"
        where = of_job if source.volume is None else of_volume
        raise ModelMistake(f"the configuration of {model} is {where}, then souk plan --model-config FILE")
    raise ModelMistake(
        f"the configuration of {model} is not on this computer, there is no {model}/{MODEL_CONFIG} among the job's "
        f"files. For a model of the hub, fetch its {MODEL_CONFIG} alone and name it: souk plan --model-config FILE"
    )


def _is_sent(spec: Spec, path: Path) -> bool:
    """Whether it is among what `files` names: else the runtime would look for the model at the hub."""
    return any(path.is_relative_to(posixpath.normpath(name)) for name in spec.files)


def _reckon(spec: Spec, shape: ModelShape, config: Settings) -> TrainingPlan:
    resources, lora = spec.resources, config.lora
    of_models = memory_of_models(resources.models)
    memory_bytes = resources.memory_mib * MIB or of_models
    places = [
        Place(
            resources.gpus * nodes,
            nodes=nodes,
            memory_bytes=memory_bytes or 0,
            is_gpu=resources.kind == "gpu",  # of `any` the processor counts, whose numbers are larger
            has_bfloat16=have_bfloat16(resources.models),
        )
        for nodes in node_counts(spec)
    ]
    # Of a training that grows the size of its gang that needs most on a device.
    place = max(places, key=lambda each: reckon_memory(shape, config, each).peak)
    memory = reckon_memory(shape, config, place)
    adapters = shape.layers * shape.adapter_parameters(lora.rank, lora.targets) if lora else 0
    one = flops_per_token(shape, length=config.length, trained_base=lora is None, adapters=adapters)
    tokens = training_tokens(spec)
    if tokens is None and spec.work is not None:  # the length was open in the job file
        tokens = config.steps_total * config.tokens_per_step
    return TrainingPlan(
        model=config.model,
        family=shape.family,
        parameters=shape.parameters,
        trained_parameters=adapters or shape.parameters,
        flops_per_token=one,
        flops=None if tokens is None else one * tokens,
        ranks=resources.devices,
        nodes_max=resources.nodes_max,
        sequence_length=config.length,
        memory=memory,
        needed_bytes=needed_bytes(memory, place),
        host_bytes=host_bytes(shape, config, place),
        floor_bytes=floor_bytes(shape, config, place),
        device_bytes=memory_bytes,
        largest_bytes=None if of_models is None else int(REPORTED_MAX * of_models),
        advice=None if memory_bytes is None else advise(shape, config, place),
        steps=None if tokens is None else -(-tokens // config.tokens_per_step),
        tokens_per_step=config.tokens_per_step,
        shape=shape,
        config=config,
    )
