"""The plan of a training: what its model takes of each device, by part, and which settings would fit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from jobs.client.output import duration, size, table
from jobs.client.training_plan import PARTS, StepPlan, TrainingPlan, gigabytes, nearest_text
from jobs.wire import PlanCheckSummary

WHAT = {
    "weights": "weights",
    "moments": "the optimizer's moments",
    "copies": "averaged and best weights",
    "gradients": "gradients",
    "gathered": "parameters gathered to compute with",
    "activations": "kept for the backward pass",
    "working": "at work at the fullest moment",
    "allocator": "held by the allocator",
}

BOUNDS = {
    "matrices": "matrix products",
    "traffic": "memory bandwidth",
    "optimizer": "memory bandwidth, in the optimizer",
    "exchange": "what the devices exchange",
    "offload": "what is moved to the node's memory and back",
}
LIKE = {
    "family, size and device": "of models like this one on {model}",
    "device": "on {model}",
    "kind of device": "on devices of this kind",
}


def step_view(found: StepPlan) -> RenderableType:
    """How long a step takes at the chosen place, what bounds it, what was assumed, and how far such plans were off."""
    total = "" if found.total_seconds is None else f", {duration(found.total_seconds)} for all steps"
    speed = f"{found.tokens_per_second:,.0f} tokens/s{total}"
    takes = f"On {found.device_model} a step takes about {_seconds(found.step.seconds)}"
    lines = [f"{takes}: {speed}. It is bound by {BOUNDS[found.step.bound]}."]
    if found.step.assumed:
        lines.append(f"Not measured, and taken to be: {'; '.join(found.step.assumed)}.")
    if found.checks is not None and found.checks.all is not None:
        lines.append(_checked(found.checks.all, found, f"by {found.checks.all.votes} customers and providers"))
    if found.checks is not None and found.checks.own is not None:
        lines.append(_checked(found.checks.own, found, "of your own"))
    lines.append("The quote's duration and price are reckoned from operations alone, and do not follow from this.")
    return Text("\n".join(lines))


def _checked(found: PlanCheckSummary, plan: StepPlan, whose: str) -> str:
    """`Of 14 trainings of your own on X, the medians: memory within 2% of the plan, a step 9% more, ...`"""
    like = LIKE.get(found.like, "").format(model=plan.device_model)
    said = []
    if found.memory_error_size is not None:
        said.append(f"memory within {found.memory_error_size:.0%} of the plan")
    if found.seconds_error is not None:
        more = "more" if found.seconds_error >= 0 else "less"
        corrected = plan.step.seconds * (1 + found.seconds_error)
        said.append(f"a step {abs(found.seconds_error):.0%} {more}, which would make {_seconds(corrected)} here")
    count = f"{found.trainings} training{'s' if found.trainings > 1 else ''}"
    return f"Of {count} {whose} {like}, the medians: {', '.join(said)}."


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def training_view(plan: TrainingPlan) -> RenderableType:
    """Everything of the plan; where nothing could be reckoned, why and what to do."""
    if plan.problem or plan.memory is None:
        return Text(f"What the training takes is not known: {plan.problem}.", style="yellow")
    rows = [(WHAT[part], size(getattr(plan.memory, part))) for part in PARTS if getattr(plan.memory, part)]
    rows.append(("at the peak", size(plan.memory.peak)))
    rows.append(("with what a process needs besides", size(plan.needed_bytes)))
    if plan.host_bytes:
        rows.append(("offloaded, in the memory of each node", size(plan.host_bytes)))
    title = f"memory of each of {plan.ranks} device{'s' if plan.ranks > 1 else ''}"
    return Group(
        Text(_model_line(plan)), table(title, ("", "bytes"), rows, right=("bytes",)), Text.from_markup(_verdict(plan))
    )


def _model_line(plan: TrainingPlan) -> str:
    trained = ""
    if plan.trained_parameters != plan.parameters:
        trained = f", and {plan.trained_parameters:,} in adapters, which alone are trained"
    work = "" if plan.flops is None else f"; {plan.flops:.3g} in all"
    return (
        f"{plan.model} ({plan.family}) has {plan.parameters:,} parameters{trained}. Sequences have "
        f"{plan.sequence_length:,} tokens; a token takes {plan.flops_per_token:.3g} floating-point operations{work}."
    )


def _verdict(plan: TrainingPlan) -> str:
    if plan.device_bytes is None or plan.advice is None:
        need = gigabytes(plan.needed_bytes).replace(" ", "")
        floor = f"Devices of less than {size(plan.floor_bytes)} are left out: they run out of memory for certain."
        return f"{floor} Under resources, memory: {need} leaves out all that may."
    of = f"a device of {plan.device_bytes / 1e9:.1f} GB"
    if plan.advice.fits:
        return f"[green]Fits[/] {of}."
    word = "Does not fit" if plan.advice.is_certain else "May not fit"
    return f"[bold red]{word}[/] {of}. {escape(nearest_text(plan))}"
