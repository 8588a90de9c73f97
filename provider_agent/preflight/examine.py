"""All checks of a computer that is not a node yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from provider_agent.preflight.containers import check_driver, check_engine, check_toolkit
from provider_agent.preflight.finding import Finding, guard
from provider_agent.preflight.machine import check_disk, check_memory, check_python, check_system
from provider_agent.preflight.network import check_network


def examine_computer(
    *, server: str, sync_server: str, folder: Path, executor: str, device_kind: str, floors: Mapping[str, str]
) -> list[Finding]:
    """Every check that needs no enrolment, in an order in which the first FIX is the first to fix."""
    return [
        guard("system", check_system),
        guard("python", check_python),
        guard("memory", check_memory),
        guard("disk", lambda: check_disk(folder, executor)),
        guard("driver", lambda: check_driver(floors, device_kind)),
        guard("engine", lambda: check_engine(floors, executor)),
        guard("toolkit", lambda: check_toolkit(floors, executor)),
        *check_network(server, sync_server),
    ]
