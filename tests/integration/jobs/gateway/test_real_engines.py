"""The official client through the gateway to engines that compute: what becomes of each parameter.

The engines are our runtime's, on tiny models with random weights; vLLM, which needs a GPU, is asked by its declaration
alone (test_openai_client.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from runtimes.contract import SERVE_SOCKET
from tests.fakes.serving_stack import Elsewhere, Stack
from tests.integration.jobs.gateway import conformance
from tests.integration.jobs.gateway.conformance import IGNORED, KINDS
from tests.integration.runtimes.serve.replicas import Replica, make_llama

TABLE = Path(__file__).parent / "conformance.md"
SECONDS_MAX = 60.0
ENGINES = {"souk": ("chat", "completion"), "transformers": ("chat", "completion"), "embed": ("embedding",)}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """Through a gateway behind which each engine serves a model of its own name."""
    folder = tmp_path_factory.mktemp("engines")
    with ExitStack() as ending:
        replicas = {name: _start(name, folder / name, ending) for name in ENGINES}
        stack = ending.enter_context(Stack(tmp_path_factory.mktemp("stack")))
        for name, replica in replicas.items():
            (ready,) = replica.until_ready().events("ready")
            task = "embed" if name == "embed" else "generate"
            row = stack.add_endpoint(name, task=task, limits={"max_tokens": 128, "in_flight": 4})
            facts = {key: value for key, value in ready.items() if key not in {"event", "at"}}
            stack.adopt(Elsewhere(port=0, uds=replica.root / SERVE_SOCKET), ready=facts, of=row)
        stack.start_gateway()
        for each in stack.replicas:
            stack.start_provider(each)
        stack.wait_ready(len(replicas))
        yield openai.OpenAI(base_url=stack.base_url, api_key=stack.key, max_retries=0, timeout=SECONDS_MAX)


def _start(engine: str, root: Path, ending: ExitStack) -> Replica:
    """A replica that is on its way up: the others need not wait for it."""
    config: dict[str, Any] = {"engine": engine, "served_as": engine}
    replica = Replica(root).write(config)
    folder = make_llama(root / "input" / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    if engine == "embed":
        described = json.loads((folder / "config.json").read_text()) | {"architectures": ["LlamaModel"]}
        (folder / "config.json").write_text(json.dumps(described))
    ending.callback(replica.end)
    return replica.start()


@pytest.mark.parametrize("engine", ENGINES)
def test_no_parameter_is_passed_over_and_the_documented_column_is_what_was_seen(
    client: openai.OpenAI, engine: str
) -> None:
    kinds = {kind: KINDS[kind] for kind in ENGINES[engine]}
    found = conformance.table(client, engine, lambda name: conformance.UNKNOWN, kinds)
    assert [name for name, verdict in found.items() if verdict == IGNORED] == []
    assert conformance.read_markdown(TABLE.read_text())[engine] == found, json.dumps(found, indent=1)
