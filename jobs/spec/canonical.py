"""The one JSON form of a spec, to which quotes are bound: the file's own keys, all defaults written, fixed units."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from jobs.spec.kinds.registry import kind_of
from jobs.spec.model import DEFAULT_ISOLATION, Budget, Checkpoint, EvaluationSection, Payment, Resources, Spec
from jobs.spec.units import AUTO, format_duration, format_money, format_nodes, format_version


def canonical(spec: Spec) -> dict[str, Any]:
    """The spec as JSON; `from_wire` reads it back to an equal spec."""
    body: dict[str, Any] = {
        "kind": spec.kind,
        "name": spec.name,
        "resources": _resources(spec.resources),
        "work": spec.work.model_dump(exclude_none=True) if spec.work else None,
        "budget": _budget(spec.budget),
        "checkpoint": _checkpoint(spec.checkpoint),
        "retry": spec.retry.model_dump(),
        "env": dict(sorted(spec.env.items())),
        "secrets": spec.secrets,
        "files": spec.files,
        "image": spec.image,
        # Absent where nothing is set, so that what was hashed before these fields existed keeps its hash.
        "payment": _payment(spec.payment) if spec.payment != Payment() else None,
        "network": spec.network if spec.network != "none" else None,
        "lent": spec.lent or None,
        "inputs": {name: each.model_dump(exclude_none=True) for name, each in sorted(spec.inputs.items())} or None,
        "outputs": spec.outputs,
        "setup": spec.setup,
        "requirements": spec.requirements,
        "command": spec.command,
        "evaluation": _evaluation(spec.evaluation) if spec.evaluation else None,
    }
    kind = kind_of(spec)
    if spec.section is not None:
        body[kind.name] = kind.canonical_section(spec.section)
    for name in kind.meaningless:  # the rules between fields refuse them
        body.pop(name, None)
    return _without_none(body)


def spec_hash(spec: Spec) -> str:
    """SHA-256 of the canonical form in hex; the order of keys in the file does not matter."""
    text = json.dumps(canonical(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _budget(budget: Budget) -> dict[str, Any]:
    body = {
        "max_total": format_money(budget.max_total_usd_micros),
        "max_per_gpu_hour": _money(budget.max_per_gpu_hour_usd_micros),
        "deadline": format_duration(budget.deadline_seconds),
    }
    return _without_none(body)


def _evaluation(section: EvaluationSection) -> dict[str, Any]:
    return {**section.model_dump(exclude={"budget"}), "budget": _budget(section.budget)}


def _resources(resources: Resources) -> dict[str, Any]:
    sizes = {
        "memory": resources.memory_mib,
        "ram": resources.ram_mib,
        "disk": resources.disk_mib,
        "shm": resources.shm_mib,
    }
    others = {"nodes_asked", "cpus", "cuda", "compute_capability"}
    body = resources.model_dump(exclude={f"{name}_mib" for name in sizes} | others)
    body["nodes"] = format_nodes(resources.nodes_asked)
    if resources.isolation == DEFAULT_ISOLATION:  # also what specs from before this default mean from now on
        del body["isolation"]
    # Absent where nothing is asked, as before these fields were there.
    body |= {name: f"{mib}MiB" for name, mib in sizes.items() if mib}
    if resources.cpus is not None:
        body["cpus"] = resources.cpus
    for name in ("cuda", "compute_capability"):
        if (version := getattr(resources, name)) is not None:
            body[name] = format_version(version)
    return body


def _payment(payment: Payment) -> dict[str, Any]:
    body = payment.model_dump()
    if payment.on_price_change == "ask":
        del body["on_price_change"]
    return body


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    every = f"{checkpoint.every_steps} steps" if checkpoint.every_steps else format_duration(checkpoint.every_seconds)
    body = {"every": AUTO if checkpoint.is_auto else every, "keep": checkpoint.keep}
    return body if checkpoint.path is None else body | {"path": checkpoint.path}


def _money(usd_micros: int | None) -> str | None:
    return None if usd_micros is None else format_money(usd_micros)


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}
