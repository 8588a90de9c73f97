"""Rules between fields, on raw data, so that they are told together with the mistakes of single fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.spec.document import Path
from jobs.spec.serve import check_serve

Finding = tuple[Path, str, str]  # where, what is wrong, what was expected


def check_rules(data: dict[str, Any]) -> Iterator[Finding]:
    """Every rule between fields that the file breaks; values of a wrong type are left to the fields' own checks."""
    yield from _program(data)
    yield from _work(data)
    yield from _names(data)
    yield from _train(data)
    yield from _network(data)
    yield from _payment(data)
    yield from _serving(data)
    yield from check_serve(data)


def _program(data: dict[str, Any]) -> Iterator[Finding]:
    if data.get("kind") == "serve":
        return
    has_train, has_command = data.get("train") is not None, data.get("command") is not None
    if has_train and has_command:
        yield ("command",), "stands beside train", "one of train and command"
    if not has_train and not has_command and data.get("kind") == "train":
        yield (), "nothing to do: neither train nor command is given", "one of train and command"
    if data.get("image") is not None and not has_command:
        yield ("image",), "is given without a command", "a command, or no image: the built-in runtime brings its own"


def _work(data: dict[str, Any]) -> Iterator[Finding]:
    if data.get("kind") == "serve":
        return
    work, has_command = data.get("work"), data.get("command") is not None
    if work is None:
        if data.get("train") is not None:
            yield (
                ("work",),
                "is missing: the built-in runtime needs an end",
                "work: {tokens: ...} or work: {steps: ...}",
            )
        return
    if not isinstance(work, dict):
        return
    given = [name for name in ("tokens", "steps") if work.get(name) is not None]
    if len(given) != 1:
        message = "both tokens and steps are given" if given else "neither tokens nor steps is given"
        yield ("work",), message, "exactly one of tokens and steps"
    if has_command and "tokens" in given:
        yield ("work", "tokens"), "means nothing for an own command", "steps, with flops_per_step"
    if work.get("flops_per_step") is not None and not has_command:
        yield (
            ("work", "flops_per_step"),
            "is for an own command; the built-in runtime reckons it itself",
            "no such field",
        )


def _names(data: dict[str, Any]) -> Iterator[Finding]:
    env, secrets, files = data.get("env"), data.get("secrets"), data.get("files")
    if isinstance(secrets, list):
        for index, name in enumerate(secrets):
            if isinstance(env, dict) and isinstance(name, str) and name in env:
                yield ("secrets", index), f"{name!r} is in env too", "it in one of env and secrets"
            if name in secrets[:index]:
                yield ("secrets", index), f"{name!r} is named twice", "each name once"
    if isinstance(files, list):
        for index, name in enumerate(files):
            if name in files[:index]:
                yield ("files", index), f"{name!r} is named twice", "each path once"
    if isinstance(lent := data.get("lent"), list):
        for index, name in enumerate(lent):
            if name in lent[:index]:
                yield ("lent", index), f"{name!r} is named twice", "each label once"


def _train(data: dict[str, Any]) -> Iterator[Finding]:
    train, resources = data.get("train"), data.get("resources", {})
    if not isinstance(train, dict):
        return
    batch, micro = train.get("global_batch_size", 16), train.get("micro_batch_size")
    if _is_count(batch) and _is_count(micro) and micro > batch:
        path = ("train", "micro_batch_size")
        yield path, f"{micro} is more than global_batch_size, which is {batch}", f"at most {batch}"
    gpus, nodes = (resources.get(key, 1) if isinstance(resources, dict) else 1 for key in ("gpus", "nodes"))
    if _is_count(batch) and _is_count(gpus) and _is_count(nodes) and gpus * nodes > batch:
        message = f"{batch} sequences a step are too few for {gpus * nodes} devices"
        yield ("train", "global_batch_size"), message, f"at least {gpus * nodes}, one a device"


def _network(data: dict[str, Any]) -> Iterator[Finding]:
    resources = data.get("resources")
    nodes = resources.get("nodes", 1) if isinstance(resources, dict) else 1
    if data.get("network") == "public" and _is_count(nodes) and nodes > 1:
        yield ("network",), "is public, but a job over several nodes has their fabric's network", "none, or nodes: 1"


def _payment(data: dict[str, Any]) -> Iterator[Finding]:
    payment = data.get("payment")
    if not isinstance(payment, dict) or payment.get("mode") != "escrow":
        return
    if payment.get("asset", "USD") == "USD":
        yield ("payment", "mode"), "is escrow, which holds tokens and no dollars", "credits, or asset: a token"
    if payment.get("on_price_change") == "requote":
        message = "is requote, but what a contract holds is what your wallet signed"
        yield ("payment", "on_price_change"), message, "ask, or mode: credits"


def _serving(data: dict[str, Any]) -> Iterator[Finding]:
    """What is of training alone, and what is of serving alone."""
    has_serve = data.get("serve") is not None
    if data.get("kind") != "serve":
        if has_serve:
            yield ("serve",), "is for kind: serve", "kind: serve, or no such section"
        return
    if not has_serve:
        yield (), "nothing to serve: there is no serve section", "serve: {model: {job: ...}}"
    for name in ("train", "command", "image", "work", "checkpoint", "retry"):
        if data.get(name) is not None:
            yield (name,), "means nothing for kind: serve", "no such field"
    resources = data.get("resources")
    if isinstance(resources, dict) and _is_count(resources.get("nodes")) and resources["nodes"] > 1:
        yield ("resources", "nodes"), "is more than 1, and a replica is on one node", "nodes: 1; replicas are many"
    if data.get("payment") is not None and data["payment"] != {"asset": "USD"}:
        yield ("payment",), "is for jobs that end: an endpoint is paid in dollars, day by day", "no such field"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
