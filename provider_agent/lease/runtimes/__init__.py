"""What differs between the runtimes that a node can run: one table, one module per runtime.

    base.py       the interface, with what most runtimes share
    train.py      trains a model: one process per device, over several nodes if the job asks for it
    serve.py      serves a model: one engine, announced to the gateways
    command.py    the customer's own command, with no runtime of ours

To add a runtime, add a module and its row in RUNTIMES. An assignment for any other runtime is refused, never run as
something else.
"""

from __future__ import annotations

from provider_agent.errors import AssignmentRefused
from provider_agent.lease.runtimes.base import FetchedInput, Runtime
from provider_agent.lease.runtimes.command import CommandRuntime
from provider_agent.lease.runtimes.serve import ServeRuntime
from provider_agent.lease.runtimes.train import TrainRuntime
from provider_agent.protocol import Assignment

__all__ = ["RUNTIMES", "FetchedInput", "Runtime", "runtime_of"]

RUNTIMES: dict[str, Runtime] = {each.name: each for each in (TrainRuntime(), ServeRuntime(), CommandRuntime())}


def runtime_of(assignment: Assignment) -> Runtime:
    """The runtime of an assignment, "command" if it names none; raises AssignmentRefused for an unknown one."""
    name = assignment.program.runtime or CommandRuntime.name
    runtime = RUNTIMES.get(name)
    if runtime is None:
        known = ", ".join(sorted(RUNTIMES))
        raise AssignmentRefused(f"This agent has no runtime {name!r}, only {known}. Update this agent.")
    return runtime
