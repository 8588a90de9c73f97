"""The plan of a training: what its model takes of each device, by part, and which settings would fit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from jobs.client.output import size, table
from jobs.client.training_plan import PARTS, TrainingPlan, gigabytes, nearest_text

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
