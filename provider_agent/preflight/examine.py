"""All checks of a computer that is not a node yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from provider_agent.preflight.abilities import DesiredSettings, check_disk_limit, check_egress, check_gangs
from provider_agent.preflight.containers import check_driver, check_engine, check_toolkit
from provider_agent.preflight.finding import Finding, guard
from provider_agent.preflight.image import check_image
from provider_agent.preflight.interpreter import check_interpreter
from provider_agent.preflight.machine import check_disk, check_memory, check_python, check_system
from provider_agent.preflight.network import check_network
from provider_agent.preflight.serving import check_serving


def examine_computer(
    *,
    server: str,
    sync_server: str,
    folder: Path,
    desired: DesiredSettings,
    device_kind: str,
    floors: Mapping[str, str],
) -> list[Finding]:
    """Every check that needs no enrolment, in an order in which the first FIX is the first to fix."""
    executor, chosen = desired.executor, desired.of_node(folder)
    return [
        guard("system", check_system),
        guard("python", check_python),
        guard("interpreter", lambda: check_interpreter(chosen)),
        guard("memory", check_memory),
        guard("disk", lambda: check_disk(folder, executor)),
        guard("driver", lambda: check_driver(floors, device_kind)),
        guard("engine", lambda: check_engine(floors, executor)),
        guard("toolkit", lambda: check_toolkit(floors, executor)),
        guard("image", lambda: _check_image(chosen)),
        guard("disk limit", lambda: check_disk_limit(chosen)),
        guard("egress", lambda: check_egress(chosen)),
        guard("gangs", lambda: check_gangs(chosen)),
        guard("serving", lambda: check_serving(chosen, device_kind=device_kind)),
        *check_network(server, sync_server),
    ]


def _check_image(desired: DesiredSettings) -> Finding:
    """A repair of a node that is there already is not held up by what a registry says today."""
    found = check_image(desired.executor, desired.train_image)
    return replace(found, verdict="SKIP") if found.verdict == "FIX" and desired.is_enrolled else found
