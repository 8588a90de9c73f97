"""A job and a list of jobs, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from jobs.client.output import ago, duration, money, size, state, table
from jobs.client.views.hold import escrow_lines
from jobs.wire import AttemptView, JobView

PREPARING_STATES = frozenset({"placed", "running"})  # in any other one the attempt that prepared has ended


def jobs_view(jobs: Sequence[JobView]) -> Table:
    """One job a line, newest first."""
    columns = ("id", "name", "state", "progress", "cost", "at most", "submitted")
    rows = [
        (
            str(job.job_id),
            escape(job.name),
            state(job.state),
            progress_text(job),
            money(job.cost_so_far_usd_micros),
            money(job.cap_usd_micros),
            ago(job.created_at),
        )
        for job in jobs
    ]
    return table("", columns, rows, right=("cost", "at most"))


def job_view(job: JobView, *, scale: int | None = None) -> RenderableType:
    """Where a job is, what it has cost, and every attempt with its ending; `scale`: decimals of the token that pays."""
    lines = [
        f"[bold]{escape(job.name)}[/]  {job.job_id}",
        f"state     {state(job.state)}" + (" (being cancelled)" if job.is_cancelling else "") + _because(job),
        f"cost      {money(job.cost_so_far_usd_micros)} of at most {money(job.cap_usd_micros)}",
        f"submitted {ago(job.created_at)}",
    ]
    if job.progress:
        lines.append(f"progress  {progress_text(job)}")
    if job.waiting_for:
        lines.append(f"waiting   {escape(job.waiting_for)}")
    lines += _evaluation_lines(job)
    lines += escrow_lines(job, scale=scale)
    parts: list[RenderableType] = [Text.from_markup("\n".join(lines))]
    if job.attempts:
        parts.append(_attempts(job.attempts))
        parts += [Text(line, style="dim") for attempt in job.attempts for line in _generation_lines(attempt)]
    return Group(*parts)


def _evaluation_lines(job: JobView) -> list[str]:
    """What becomes of the evaluation that follows a training, or which training this one follows."""
    if job.evaluated_job_id is not None:
        return [f"evaluates {job.evaluated_job_id}"]
    found = job.evaluation
    if found is None:
        return []
    cap = money(found.cap_usd_micros)
    text = {
        "planned": f"follows when this has completed, for at most {cap}",
        "due": f"is launched soon, for at most {cap}",
        "launched": str(found.job_id),
        "given_up": f"was not launched: {escape(found.message)}",
        "none": "none: only a training that completes is evaluated",
    }.get(found.state, escape(found.state))
    if found.state == "due" and found.tries and found.next_try_at is not None:
        text = f"waits, and is tried again at {found.next_try_at:%H:%M} UTC: {escape(found.message)}"
    return [f"evaluation {text}"]


def progress_text(job: JobView) -> str:
    """`step 120/300, loss 3.21, 5.1k tokens/s`; before the first step what is prepared, and how far that is."""
    progress = job.progress
    if job.state in PREPARING_STATES and isinstance(preparing := progress.get("preparing"), dict):
        return preparing_text(preparing)
    parts = []
    if "step" in progress:
        total = progress.get("steps_total")
        parts.append(f"step {progress['step']}" + (f"/{total}" if total else ""))
    if isinstance(progress.get("loss"), int | float):
        parts.append(f"loss {progress['loss']:.3f}")
    if isinstance(progress.get("tokens_per_second"), int | float):
        parts.append(f"{progress['tokens_per_second']:,.0f} tokens/s")
    return ", ".join(parts)


def preparing_text(preparing: Mapping[str, Any]) -> str:
    """`preparing: data, 3.2 GB of 30.0 GB, 4m`"""
    parts = [f"preparing: {escape(str(preparing.get('what')))}"]
    done, total, unit = (preparing.get(name) for name in ("done", "total", "unit"))
    if isinstance(done, int):
        counts = [count for count in (done, total) if isinstance(count, int)]
        shown = " of ".join(size(count) if unit == "bytes" else f"{count:,}" for count in counts)
        parts.append(shown if unit in (None, "bytes") else f"{shown} {escape(str(unit))}")
    if isinstance(seconds := preparing.get("seconds"), int | float):
        parts.append(duration(seconds))
    return ", ".join(parts)


def _because(job: JobView) -> str:
    text = ": ".join(part for part in (job.reason, job.message) if part and part != job.state)
    return f" ({escape(text)})" if text else ""


def _generation_lines(attempt: AttemptView) -> list[str]:
    """`attempt 1: grown to 3 nodes at step 40`, one line for each time that its gang had another size."""
    lines = []
    for each in attempt.generations:
        why = "" if each.reason == "grown" else f" ({each.reason})"
        if each.grown_to or each.shrunk_to:
            size = f"grown to {each.grown_to}" if each.grown_to else f"shrunk to {each.shrunk_to}"
            lines.append(f"attempt {attempt.number}: {size} nodes at step {each.resumed_step}{why}")
    return lines


def _attempts(attempts: Sequence[AttemptView]) -> Table:
    columns = ("attempt", "state", "nodes", "from step", "ran", "billed", "why")
    rows = []
    for attempt in attempts:
        charges = [lease.charge_usd_micros for lease in attempt.leases if lease.charge_usd_micros is not None]
        ran = (
            (attempt.ended_at - attempt.running_at).total_seconds() if attempt.running_at and attempt.ended_at else None
        )
        why = ", ".join(
            part
            for part in (
                attempt.reason,
                f"fault: {attempt.fault}" if attempt.fault not in ("", "nobody") else "",
                attempt.message,
            )
            if part
        )
        rows.append(
            (
                str(attempt.number),
                attempt.state,
                escape(", ".join(f"{each.node_name}{' (joins)' * each.is_joining}" for each in attempt.leases)),
                "-" if attempt.resumed_from_step is None else str(attempt.resumed_from_step),
                duration(ran),
                money(sum(charges)) if charges else "-",
                escape(why),
            )
        )
    return table("", columns, rows, right=("attempt", "from step", "ran", "billed"))
