"""One table from an assignment's runtime to what the node does; an unknown runtime is refused, never guessed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from provider_agent.config import AgentConfig
from provider_agent.context import AgentContext
from provider_agent.errors import AssignmentRefused
from provider_agent.lease.assignments import accept_assignment
from provider_agent.lease.preparation import prepare
from provider_agent.lease.runtimes import registry
from provider_agent.lease.runtimes.base import FetchedInput, Runtime
from provider_agent.lease.runtimes.registry import runtime_of
from provider_agent.protocol import Assignment, GatewayPlace, Program, Reason, ServePlace

from ..conftest import Bob, eventually
from ..fake_server import FakeServer

ENDPOINT = ServePlace(endpoint_id=uuid4(), gateways=[GatewayPlace(url="ws://gateway", public_key="ab" * 32)])

TOY = """
import sys
from provider_agent import resident
from provider_agent.lease.runtimes import base, registry

class Toy(base.Runtime):
    name = "toy"
    def launch_command(self, assignment, *, python):
        return [python, "-c", "import json, os; print('toy', json.load(open(os.environ['SOUK_CONFIG']))['words'])"]
    def is_healthy(self, assignment, *, events, has_output, alive_seconds):
        return has_output

registry.RUNTIMES["toy"] = Toy()
raise SystemExit(resident.main())
"""


def assigned(context: AgentContext, **changes: Any) -> Assignment:
    values: dict[str, Any] = {
        "node_id": context.config.node_id,
        "lease_id": uuid4(),
        "fence": 1,
        "attempt_id": uuid4(),
        "attempt_number": 1,
        "job_id": uuid4(),
        "job_name": "alice-job",
        "device_uuids": list(context.devices),
        "rate_usd_micros_per_hour": 1,
        "cap_usd_micros": 1,
        "program": Program(runtime="train"),
        "seconds_max": 600,
    }
    return Assignment(**values | changes)


@pytest.mark.parametrize(
    ("program", "place", "command"),
    [
        (Program(runtime="train"), None, ["python", "-m", "runtimes.launch", "runtimes.train"]),
        (Program(runtime="serve"), ENDPOINT, ["python", "-m", "runtimes.serve", "--drain-seconds", "60"]),
        (Program(runtime="eval"), None, ["python", "-m", "runtimes.evaluate"]),
        (Program(command=["true"]), None, ["true"]),
        (Program(runtime="serve", command=["own", "engine"]), ENDPOINT, ["own", "engine"]),
    ],
)
def test_each_runtime_has_its_command_line(
    context: AgentContext, program: Program, place: ServePlace | None, command: list[str]
) -> None:
    assignment = assigned(context, program=program, serve=place)
    runtime = runtime_of(assignment)
    runtime.check(assignment)
    assert runtime.command_line(assignment, python="python") == command


def test_only_a_replica_of_an_endpoint_is_announced(context: AgentContext) -> None:
    announced = [
        assigned(context, program=Program(runtime=name, command=command), serve=place)
        for name in ("train", "serve", None)
        for command in (None, ["true"])
        for place in (None, ENDPOINT)
    ]
    found = [each for each in announced if runtime_of(each).is_announced(each)]
    assert {each.program.runtime for each in found} == {"serve"}
    assert all(each.serve for each in found)


def test_serving_and_training_have_their_own_image(context: AgentContext) -> None:
    config = context.config.model_copy(update={"train_image": "lab/train", "serve_image": "lab/serve"})
    found = {name: registry.RUNTIMES[name].image(config) for name in sorted(registry.RUNTIMES)}
    assert found == {"command": "lab/train", "eval": "lab/train", "serve": "lab/serve", "train": "lab/train"}


def test_own_command_is_healthy_by_its_output_and_ours_by_its_event(context: AgentContext) -> None:
    ours, own = assigned(context), assigned(context, program=Program(runtime="train", command=["true"]))
    signs: dict[str, Any] = {"events": b"", "has_output": True, "alive_seconds": 60.0}
    assert runtime_of(own).is_healthy(own, **signs)
    assert not runtime_of(ours).is_healthy(ours, **signs)
    started = {"events": b'{"event": "started"}\n', "has_output": False, "alive_seconds": 0.0}
    assert runtime_of(ours).is_healthy(ours, **started)
    assert not runtime_of(own).is_healthy(own, **started), "a customer's own events are not believed"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (Program(runtime="quantum"), "no runtime 'quantum', only command, eval, serve, train"),
        (Program(runtime="quantum", command=["true"]), "no runtime 'quantum'"),
        (Program(), "neither a runtime nor a command"),
        (Program(command=[]), "neither a runtime nor a command"),
        (Program(runtime="serve"), "names no endpoint"),
    ],
)
def test_what_no_runtime_can_run_is_refused_and_nothing_is_kept(
    context: AgentContext, server: FakeServer, program: Program, message: str
) -> None:
    lease = server.give(assigned(context, program=program))
    with pytest.raises(AssignmentRefused, match=message):
        accept_assignment(context, lease.desired)
    assert context.journal.load_leases() == []


def test_unknown_runtime_is_never_run_as_another(bob: Bob, server: FakeServer) -> None:
    bob.enrol()
    bob.start()
    server.give(bob.assignment(program=Program(runtime="quantum")))
    eventually(lambda: "no runtime 'quantum'" in bob.log_text(), "the refusal")
    assert not list(bob.folder.leases.iterdir())
    lease = server.give(bob.assignment(sys.executable, "-c", "print('next')"))
    eventually(lambda: lease.report and lease.report.reason is Reason.COMPLETED, "the next program")


def test_a_runtime_is_added_by_one_class_and_one_row(bob: Bob, server: FakeServer) -> None:
    """The seam: a toy that exists here alone goes from its assignment to its end, with nothing else changed."""
    bob.enrol()
    bob.start(program=[sys.executable, "-c", TOY])
    lease = server.give(bob.assignment(program=Program(runtime="toy", config={"words": "hello"})))
    eventually(lambda: lease.report and lease.report.reason is Reason.COMPLETED, "the toy's end")
    eventually(lambda: lease.logs == b"toy hello\n", "what it printed")


def test_a_toys_environment_and_image_reach_the_launch(context: AgentContext, monkeypatch: pytest.MonkeyPatch) -> None:
    class Toy(Runtime):
        name: ClassVar[str] = "toy"

        async def fetch_input(self, *_: object) -> FetchedInput:
            return FetchedInput({".toys": "/srv/toys"}, {"SOUK_INPUT_DIR": "/toys"})

        def image(self, config: AgentConfig) -> str:
            return "lab/toy"

        def launch_command(self, assignment: Assignment, *, python: str) -> list[str]:
            return [python, "toy.py"]

    monkeypatch.setitem(registry.RUNTIMES, "toy", Toy())
    spec = asyncio.run(prepare(context, assigned(context, program=Program(runtime="toy"))))
    assert spec.argv == [context.executor.python(), "toy.py"]
    assert spec.shared_folders == {".toys": "/srv/toys"}
    assert spec.env["SOUK_INPUT_DIR"] == "/toys"
