"""A node says that it serves only where it can, and says why not."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from provider_agent.commands.status_view import serving_lines
from provider_agent.config import load_config, save_config
from provider_agent.context import AgentContext
from provider_agent.executors.process import ProcessExecutor
from provider_agent.facts import EVALUATION_FEATURE, RUNTIME_FEATURES, find_facts
from provider_agent.images import SERVE_IMAGE
from provider_agent.node.abilities import check_serving
from provider_agent.node.ability_to_serve import look
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.fake_server import FakeServer


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with nothing but its standard library."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return str(folder / "bin" / "python")


def test_an_environment_that_has_all_serves_and_the_next_facts_say_so(context: AgentContext) -> None:
    assert context.why_no_serving, "nobody has looked yet"
    asyncio.run(look(context))
    assert (context.why_no_serving, context.facts_changed) == ("", True)
    context.facts_changed = False
    asyncio.run(look(context))
    assert not context.facts_changed, "nothing is new"


def test_a_node_evaluates_only_where_the_harness_is(context: AgentContext, bare_python: str) -> None:
    assert context.why_no_evaluation, "nobody has looked yet"
    asyncio.run(look(context))
    has_harness = importlib.util.find_spec("lm_eval") is not None
    assert (context.why_no_evaluation == "") == has_harness
    bare = asyncio.run(ProcessExecutor(bare_python).why_no_evaluation("any/image"))
    assert bare == f"{bare_python} has no runtimes.evaluate, torch, transformers, lm_eval"


@pytest.mark.parametrize("is_evaluator", [True, False])
def test_the_facts_name_the_harness_where_it_is(context: AgentContext, is_evaluator: bool) -> None:
    executor, devices = context.executor, list(context.devices.values())
    facts = find_facts(
        context.config, context.folder, devices, executor=executor, engine_version="", is_evaluator=is_evaluator
    )
    assert (EVALUATION_FEATURE in facts.runtime_features) == is_evaluator
    assert EVALUATION_FEATURE not in RUNTIME_FEATURES


def test_what_an_environment_lacks_is_named(bob: Bob, bare_python: str) -> None:
    bob.enrol(runtime_python=bare_python)
    found = check_serving(bob.folder, load_config(bob.folder))
    assert found.verdict == "SKIP", "it can be rented for everything else"
    assert found.found == f"no models are served here: {bare_python} has no torch, transformers, fastapi, uvicorn"
    assert found.fix == f"{bare_python} -m pip install 'gpusouk[serve]'"


def test_an_interpreter_that_is_not_there_serves_nothing(bob: Bob, tmp_path: Path) -> None:
    bob.enrol(runtime_python=str(tmp_path / "gone"))
    assert "gone does not run" in check_serving(bob.folder, load_config(bob.folder)).found


def test_the_doctor_says_that_a_node_serves(bob: Bob) -> None:
    bob.enrol()
    assert check_serving(bob.folder, load_config(bob.folder)).as_text() == f"PASS  serving: {sys.executable}"


@pytest.mark.slow
def test_an_agent_reports_to_the_marketplace_and_its_provider(bob: Bob, server: FakeServer, bare_python: str) -> None:
    bob.enrol()
    assert not server.nodes[bob.node_id()].facts.is_server, "nobody knows before the first start"
    bob.start()
    assert eventually(lambda: reported(server), "facts")[0], "the first facts say it already"
    status = json.loads(bob.run("status", "--json").stdout)
    assert status["serving"] == {"why_not": "", "tunnels": [], "leases": []}
    bob.stop()
    change_config(bob, runtime_python=bare_python)
    bob.start()
    eventually(lambda: not reported(server)[-1], "the fact is withdrawn")
    status = json.loads(bob.run("status", "--json").stdout)
    assert "has no torch" in status["serving"]["why_not"]


def test_configs_of_before_serving_and_of_today_load_in_each_other_without_an_image(bob: Bob) -> None:
    bob.enrol(train_image="lab/train:2")
    assert "serve_image" not in json.loads(bob.folder.config.read_text()), "the release before would refuse it"
    config = load_config(bob.folder)
    assert (config.train_image, config.serve_image) == ("lab/train:2", SERVE_IMAGE)
    save_config(bob.folder, config.model_copy(update={"serve_image": "lab/serve:2"}))
    assert load_config(bob.folder).serve_image == "lab/serve:2"


def test_the_status_shows_tunnels_and_what_was_served() -> None:
    up: dict[str, Any] = {"gateway": "wss://one/", "leases": 1, "is_up": True, "why": "", "round_trip_ms": 12.34}
    down = {**up, "gateway": "wss://two/", "is_up": False, "why": "OSError: refused", "round_trip_ms": None}
    served = {"lease_id": "L1", "requests": 1200, "failed": 3, "in_flight": 2, "input_tokens": 5000, "output_tokens": 7}
    tunnels = [{**up, "up_seconds": 3700.0}, {**down, "up_seconds": 0.0}]
    assert serving_lines({"why_not": "", "tunnels": tunnels, "leases": [served]}) == [
        "tunnel to wss://one/: up 1 h 1 min, 12.3 ms; 1 replica(s)",
        "tunnel to wss://two/: not there: OSError: refused; 1 replica(s)",
        "serves lease L1: 1,200 requests (3 failed), 2 open; 5,000 tokens in, 7 out",
    ]
    assert serving_lines({"why_not": "no image", "tunnels": [], "leases": []}) == []


def reported(server: FakeServer) -> list[bool]:
    """What the agent reported of itself, in order."""
    return [sync.facts.is_server for sync in server.syncs if sync.facts is not None]


def change_config(bob: Bob, **changes: Any) -> None:
    """As a provider's editor would."""
    written = json.loads(bob.folder.config.read_text()) | changes
    bob.folder.config.write_text(json.dumps(written))
