"""The one JSON form of a spec, to which quotes are bound: the file's own keys, all defaults written, fixed units."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from jobs.spec.model import Checkpoint, Payment, Resources, Spec
from jobs.spec.serve import Serve
from jobs.spec.units import format_money

_SERVE_SECONDS = {"scale": ("queue", "idle", "wake"), "limits": ("request",), "rollout": ("step",)}


def canonical(spec: Spec) -> dict[str, Any]:
    """The spec as JSON; `from_wire` reads it back to an equal spec."""
    budget = spec.budget
    body: dict[str, Any] = {
        "kind": spec.kind,
        "name": spec.name,
        "resources": _resources(spec.resources),
        "work": spec.work.model_dump(exclude_none=True) if spec.work else None,
        "budget": {
            "max_total": format_money(budget.max_total_usd_micros),
            "max_per_gpu_hour": _money(budget.max_per_gpu_hour_usd_micros),
            "deadline": _duration(budget.deadline_seconds),
        },
        "checkpoint": _checkpoint(spec.checkpoint),
        "retry": spec.retry.model_dump(),
        "env": dict(sorted(spec.env.items())),
        "secrets": spec.secrets,
        "files": spec.files,
        "image": spec.image,
        # Not there where nothing is asked, so that what was hashed before these fields existed keeps its hash.
        "payment": _payment(spec.payment) if spec.payment != Payment() else None,
        "network": spec.network if spec.network != "none" else None,
        "lent": spec.lent or None,
        "command": spec.command,
        "train": spec.train.model_dump() if spec.train else None,
        "serve": _serve(spec.serve) if spec.serve else None,
    }
    if spec.kind == "serve":  # means nothing there, and the rules between fields refuse it
        del body["checkpoint"], body["retry"]
    return {key: _without_none(value) if key == "budget" else value for key, value in body.items() if value is not None}


def spec_hash(spec: Spec) -> str:
    """SHA-256 of the canonical form in hex; the order of keys in the file does not matter."""
    text = json.dumps(canonical(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def train_config(spec: Spec) -> dict[str, Any]:
    """config.json of the built-in runtime: the `train` section and the declared work; empty for an own command."""
    if spec.train is None:
        return {}
    work = spec.work.model_dump(include={"tokens", "steps"}, exclude_none=True) if spec.work else {}
    return {**spec.train.model_dump(), **work}


def serve_config(spec: Spec) -> dict[str, Any]:
    """config.json of the serving runtime: what an engine needs to know of the `serve` section."""
    serve = spec.serve
    if serve is None:
        return {}
    source = serve.model.model_dump(exclude_none=True)
    return {
        "model": source,
        "served_as": serve.served_as or spec.name,
        "engine": serve.engine,
        "dtype": serve.dtype,
        "quantization": serve.quantization,
        "context": serve.limits.context,
        "max_tokens": serve.limits.max_tokens,
        "in_flight": serve.scale.in_flight,
        "verify": serve.verify_share > 0,
    }


def _serve(serve: Serve) -> dict[str, Any]:
    """The section with every default, durations and money as the file may have them."""
    body: dict[str, Any] = serve.model_dump(by_alias=True, exclude_none=True)
    for section, names in _SERVE_SECONDS.items():
        for name in names:
            body[section][name] = _duration(body[section][name])
    for name, usd_micros in body["prices"].items():
        body["prices"][name] = format_money(usd_micros)
    return body


def _resources(resources: Resources) -> dict[str, Any]:
    body = resources.model_dump(exclude={"memory_mib"})
    if resources.isolation == "any":
        del body["isolation"]
    if resources.memory_mib:
        body["memory"] = f"{resources.memory_mib}MiB"
    return body


def _payment(payment: Payment) -> dict[str, Any]:
    body = payment.model_dump()
    if payment.on_price_change == "ask":
        del body["on_price_change"]
    return body


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    every = f"{checkpoint.every_steps} steps" if checkpoint.every_steps else _duration(checkpoint.every_seconds)
    return {"every": every, "keep": checkpoint.keep}


def _money(usd_micros: int | None) -> str | None:
    return None if usd_micros is None else format_money(usd_micros)


def _duration(seconds: int | None) -> str | None:
    return None if seconds is None else f"{seconds}s"


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}
