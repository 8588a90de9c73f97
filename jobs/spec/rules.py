"""Rules between fields, on raw data, so that they are reported together with the mistakes of single fields.

Those of one kind of job stand in its module, `jobs/spec/kinds`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from jobs.spec.kinds.base import Finding, SpecKind, nodes_of
from jobs.spec.kinds.registry import KINDS, find_kind
from jobs.spec.section import listed


def check_rules(data: dict[str, Any]) -> Iterator[Finding]:
    """Every rule between fields that the file breaks; values of a wrong type are left to the fields' own checks."""
    yield from _names(data)
    yield from _inputs(data)
    yield from _network(data)
    yield from _gpu_versions(data)
    yield from _payment(data)
    kind = find_kind(data.get("kind"))
    if kind is not None:
        yield from _of_other_kinds(data, kind)
        yield from _growing(data, kind)
        yield from kind.check(data)


def _of_other_kinds(data: dict[str, Any], kind: SpecKind) -> Iterator[Finding]:
    """Keys that mean nothing for this kind, and sections of other kinds."""
    for name in kind.meaningless:
        if data.get(name) is not None:
            yield (name,), f"means nothing for kind: {kind.name}", "no such field"
    for name, other in KINDS.items():
        if other.section is None or name == kind.name or name in kind.meaningless:
            continue
        if data.get(name) is not None:
            yield (name,), f"is for kind: {name}", f"kind: {name}, or no such section"


def _growing(data: dict[str, Any], kind: SpecKind) -> Iterator[Finding]:
    """A range of nodes is for a launcher that goes on with more of them, and for money that can be shared anew."""
    fewest, most = nodes_of(data.get("resources"))
    if fewest == most:
        return
    payment = data.get("payment")
    if not kind.may_grow or data.get("command") is not None:
        message = "is a range, and only the built-in training can go on with more nodes"
        yield ("resources", "nodes"), message, f"a whole number, such as {fewest}"
    elif isinstance(payment, dict) and payment.get("mode") == "escrow":
        message = "is a range, and payment.mode is escrow: each node's share of what your wallet signed is fixed"
        yield ("resources", "nodes"), message, f"a whole number, such as {fewest}, or mode: credits"


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


def _inputs(data: dict[str, Any]) -> Iterator[Finding]:
    inputs, files = data.get("inputs"), data.get("files")
    if not isinstance(inputs, dict):
        return
    for folder, given in inputs.items():
        if isinstance(given, dict):
            yield from _given(folder, given)
    if not isinstance(files, list | str):
        return
    sent = {PurePosixPath(name).parts[:1] for name in listed(files) if isinstance(name, str)}
    for folder in inputs:
        if (folder,) in sent:
            yield ("inputs", folder), f"{folder!r} is among files, too", "another name for one of them"


def _given(folder: Any, given: dict[str, Any]) -> Iterator[Finding]:
    has_job, has_volume = given.get("job") is not None, given.get("volume") is not None
    if has_job == has_volume:
        message = "names a job and a volume" if has_job else "names neither a job nor a volume"
        yield ("inputs", folder), message, "{job: NAME}, or {volume: NAME}"
    elif has_job and given.get("version") is not None:
        yield ("inputs", folder, "version"), "is of a volume, and a job is named", "{volume: NAME, version: NUMBER}"


def _network(data: dict[str, Any]) -> Iterator[Finding]:
    if data.get("network") == "public" and nodes_of(data.get("resources"))[1] > 1:
        yield ("network",), "is public, but a job over several nodes has their fabric's network", "none, or nodes: 1"


def _gpu_versions(data: dict[str, Any]) -> Iterator[Finding]:
    resources = data.get("resources")
    if not isinstance(resources, dict) or resources.get("kind") != "cpu":
        return
    for name in ("cuda", "compute_capability"):
        if resources.get(name) is not None:
            yield ("resources", name), "is of GPUs, and kind is cpu", "kind: gpu, or no such field"


def _payment(data: dict[str, Any]) -> Iterator[Finding]:
    payment = data.get("payment")
    if not isinstance(payment, dict) or payment.get("mode") != "escrow":
        return
    if payment.get("asset", "USD") == "USD":
        yield ("payment", "mode"), "is escrow, which holds tokens and no dollars", "credits, or asset: a token"
    if payment.get("on_price_change") == "requote":
        message = "is requote, but what a contract holds is what your wallet signed"
        yield ("payment", "on_price_change"), message, "ask, or mode: credits"
