"""The runtimes that a node can run, by name.

To add one: a module with a subclass of Runtime (base.py), and a row here. An assignment for any other runtime is
refused, never run as something else.
"""

from __future__ import annotations

from provider_agent.errors import AssignmentRefused
from provider_agent.lease.runtimes.base import Runtime
from provider_agent.lease.runtimes.command import CommandRuntime
from provider_agent.lease.runtimes.eval import EvalRuntime
from provider_agent.lease.runtimes.serve import ServeRuntime
from provider_agent.lease.runtimes.train import TrainRuntime
from provider_agent.protocol import Assignment

_ALL = (TrainRuntime(), ServeRuntime(), CommandRuntime(), EvalRuntime())
RUNTIMES: dict[str, Runtime] = {each.name: each for each in _ALL}


def runtime_of(assignment: Assignment) -> Runtime:
    """The runtime of an assignment, "command" if it names none; raises AssignmentRefused for an unknown one."""
    name = assignment.program.runtime or CommandRuntime.name
    runtime = RUNTIMES.get(name)
    if runtime is None:
        known = ", ".join(sorted(RUNTIMES))
        raise AssignmentRefused(f"This agent has no runtime {name!r}, only {known}. Update this agent.")
    return runtime
