"""A marketplace that serves: `souk up` outside, two providers' nodes behind NAT, a model that was trained there."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from examples.market import SOUK, Market, NodeOptions, Party, run_json, wait_for
from jobs.client.sdk import Souk
from jobs.wire import EndpointView, JobView
from tests.acceptance.customer import ENDS, TINY, WITHOUT_CHECKS_AND_CHAIN, launch, wait_until
from tests.acceptance.rack import HERE, NODES, Rack, rack
from tests.acceptance.world.supplies import of_pytest
from tests.integration.jobs.gateway.crowd import Crowd

READY_SECONDS, BOOKS_SECONDS, ASK_SECONDS = 150.0, 30.0, 120.0
SETTLED_SECONDS = 4.0  # a gateway reports its counts every two
PRICES = {"near": "0.30", "far": "0.35"}
TRAINING: dict[str, Any] = TINY | {"name": "trained", "work": {"steps": 20}, "checkpoint": {"every": "20 steps"}}
MODEL = "tiny-chat"
TOKENS = 200


@dataclass
class World:
    """All of it, up while the fixture lasts."""

    market: Market
    rack: Rack
    alice: Party
    souk: Souk
    trained: JobView
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def spec(self, name: str, **serve: Any) -> dict[str, Any]:
        """A job file that serves what was trained."""
        section: dict[str, Any] = {
            "model": {"job": str(self.trained.job_id)},
            "engine": "souk",
            "spread": "node",
            "prices": {"input_per_million": "1.00", "output_per_million": "2.00"},
            "limits": {"max_tokens": 400, "request": "2m"},
        }
        budget = {"max_total": "2.00", "max_per_gpu_hour": "1.00"}
        resources = {"kind": "any", "isolation": "none", "memory": "500MB"}
        return {"kind": "serve", "name": name, "resources": resources, "budget": budget, "serve": section | serve}

    def serve(self, spec: dict[str, Any], ready: int = 1) -> EndpointView:
        """Launched, and so many replicas answer."""
        job = launch(self.souk, spec)
        found = next(each for each in self.souk.endpoints() if each.job_id == job.job_id)
        return self.wait_ready(found, ready)

    def wait_ready(self, endpoint: EndpointView, ready: int) -> EndpointView:
        """So many replicas are ready, and no other is there."""

        def look() -> EndpointView | None:
            seen.append(self.souk.endpoint(endpoint.endpoint_id))
            is_whole = seen[-1].replicas_ready == ready == len(seen[-1].replicas)
            return seen[-1] if is_whole else None

        seen: list[EndpointView] = []
        try:
            return wait_for(f"{ready} replicas of {endpoint.model}", look, READY_SECONDS)
        finally:
            if seen and seen[-1].replicas_ready != ready:
                print(seen[-1].model_dump_json(indent=1))

    def key(self, *options: str) -> tuple[str, str]:
        """A new key of Alice's: its name and its text."""
        name = f"key-{next(self.numbers)}"
        made = run_json([SOUK, "keys", "create", name, *options], self.alice.env(self.market.server))
        return name, made["key"]

    def client(self, key: str, **options: Any) -> openai.OpenAI:
        """The official client, unmodified."""
        options = {"timeout": ASK_SECONDS, "max_retries": 0} | options
        return openai.OpenAI(base_url=f"{self.market.operator['gateway_url']}/v1", api_key=key, **options)

    def crowd(self, key: str, size: int, **body: Any) -> Crowd:
        """So many callers who stream at once."""
        # Drawn, since what twenty steps have learnt is to repeat a blank; seeded, so that it is the same each time.
        body = {"model": MODEL, "max_tokens": TOKENS, "temperature": 1, "seed": 7} | body
        return Crowd(f"{self.market.operator['gateway_url']}/v1", key, size, **body)

    def used(self, name: str) -> tuple[int, int]:
        """Requests and tokens written, by the books, of a key."""
        view = run_json([SOUK, "usage", "--by", "key"], self.alice.env(self.market.server))
        lines = [line for line in view["lines"] if line["name"].startswith(f"{name} (")]
        return sum(line["requests"] for line in lines), sum(line["output_tokens"] for line in lines)

    def wait_used(self, name: str, requests: int) -> int:
        """Tokens written by a key, once so many requests of it are in the books and nothing more comes.

        A stream that went on elsewhere is one request in two parts, and they come to the books one after the other.
        """
        wait_for(f"{requests} requests in the books", lambda: self.used(name)[0] >= requests, BOOKS_SECONDS)
        found, before = self.used(name), (0, 0)
        while found != before:
            time.sleep(SETTLED_SECONDS)
            found, before = self.used(name), found
        assert found[0] == requests, f"{found[0]} requests in the books, not {requests}"
        return found[1]

    def check_books(self, job_id: object) -> dict[str, Any]:
        """The bill as it stands and the ledger are true."""
        env = self.alice.env(self.market.server)
        answer: dict[str, Any] = run_json([SOUK, "bill", str(job_id)], env)
        assert answer["verified"] is True, answer
        report = run_json([SOUK, "ledger", "verify", "--data", self.market.operator["data"]], env)
        assert report["is_true"], report
        return answer

    def wait_on(self, endpoint: EndpointView, ready: int, nodes: set[str]) -> EndpointView:
        """So many replicas are ready, on these nodes and no others."""

        def look() -> EndpointView | None:
            found = self.souk.endpoint(endpoint.endpoint_id)
            there = {replica.node_name for replica in found.replicas}
            return found if there == nodes and found.replicas_ready == ready == len(found.replicas) else None

        return wait_for(f"{ready} replicas of {endpoint.model} on {', '.join(sorted(nodes))}", look, READY_SECONDS)

    def bring_back(self, name: str) -> None:
        """A node that was lost is listed again."""
        self.market.start_agent(name)
        wait_for(f"node {name} to be listed", lambda: len(self.souk.offers()) == len(NODES), READY_SECONDS)

    def on_node(self, name: str) -> list[psutil.Process]:
        """Whatever runs on a node, its agent first."""
        found = []
        agent = self.market.agents[name]
        space = os.readlink(f"/proc/{agent.pid}/ns/net")  # noqa: PTH115 - it names nothing that exists
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{process.pid}/ns/net") == space:  # noqa: PTH115
                    found.append(process)
        return sorted(found, key=lambda process: process.pid != agent.pid)

    def lose_node(self, name: str) -> None:
        """SIGKILL everything there at once, as when its plug is pulled."""
        for process in self.on_node(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.market.agents[name].wait(10)

    def child(self, words: str) -> psutil.Process:
        """The process of `souk up` with these words on its command line, the oldest."""
        up = psutil.Process(self.market.processes.pid_of("souk up"))
        found = [child for child in up.children() if words in " ".join(child.cmdline())]
        return min(found, key=lambda child: child.create_time())

    @contextlib.contextmanager
    def database_away(self) -> Iterator[None]:
        """PostgreSQL answers nothing within."""
        server = psutil.Process(self.market.operator["pids"]["postgres"])
        frozen = [server, *server.children(recursive=True)]
        try:
            for process in frozen:
                process.send_signal(signal.SIGSTOP)
            yield
        finally:
            for process in reversed(frozen):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def serving_world() -> Iterator[World]:
    """Up within; afterwards everything has ended."""
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in of_pytest():
            patch.delenv(name)
        # The folder of PostgreSQL, which as root is another user's, must be one that it may enter.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="souk-serving-", dir="/tmp")))
        net = stack.enter_context(rack())
        market = stack.enter_context(
            Market(folder, bind=HERE, env={"SOUK_INSECURE_HTTP": "1", **WITHOUT_CHECKS_AND_CHAIN})
        )
        for name in NODES:
            market.ways[name] = net.way(name)
            market.enrol(name, price=PRICES[name], node=NodeOptions(devices=3))
        for name in NODES:
            market.start_agent(name)
        alice = market.sign_up("alice")
        market.deposit(alice, "20.00")
        souk = stack.enter_context(Souk(market.server, alice.key))
        wait_for("both nodes to be listed", lambda: len(souk.offers()) == len(NODES), READY_SECONDS)
        trained = wait_until(souk, launch(souk, TRAINING), ENDS)
        assert trained.state == "completed", trained.message
        yield World(market, net, alice, souk, trained)
    assert market.left == [], "everything ends when the marketplace gets the signal to stop"


def within(what: str, seconds: float, act: Callable[[], Any], kind: type[BaseException]) -> Any:
    """The error of that kind that `act` raises before long."""

    def look() -> BaseException | None:
        try:
            act()
        except kind as error:
            return error
        return None

    return wait_for(what, look, seconds)
