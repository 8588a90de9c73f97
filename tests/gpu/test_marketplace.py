"""A marketplace one of whose nodes has a real NVIDIA GPU: proven, listed, trained on, served from, paid."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch

from examples.market import BIN, SOUK, Market, NodeOptions, Party, run, run_json, wait_for
from jobs.client.sdk import Souk
from jobs.wire import JobView, OfferView
from tests.acceptance.customer import launch, wait_until
from tests.acceptance.test_checks import FINDINGS, wait_for_verdict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU, torch sees none"),
]
TRAINED_SECONDS, READY_SECONDS = 180.0, 150.0
RESOURCES: dict[str, Any] = {"gpus": 1, "isolation": "none", "memory": "20GB"}
BUDGET = {"max_total": "2.00", "max_per_gpu_hour": "3.00"}
TRAIN: dict[str, Any] = {
    "kind": "train",
    "name": "on-a-gpu",
    "resources": RESOURCES,
    "work": {"steps": 200},
    "budget": BUDGET,
    "checkpoint": {"every": "50 steps", "keep": 2},
    "train": {"model": "tiny-llama", "data": ["python-docs"], "global_batch_size": 64, "sequence_length": 256},
}


@dataclass
class World:
    """A marketplace, its node with the GPU, and a customer with ten dollars."""

    market: Market
    provider: Party
    alice: Party
    souk: Souk
    offer: OfferView

    def trained(self) -> JobView:
        """A training that has ended."""
        found = [job for job in self.souk.jobs() if job.name == TRAIN["name"]]
        job = found[0] if found else launch(self.souk, TRAIN)
        return wait_until(self.souk, job, {"completed", "failed", "cancelled"}, TRAINED_SECONDS)


class WithoutInstall(Market):
    """Its nodes run the agent of this environment: installing one would fetch torch anew."""

    agent_program = str(BIN / "souk-agent")

    def enrol(self, name: str, *, price: str, provider: Party | None = None, node: NodeOptions | None = None) -> Party:
        """By `souk-agent enrol`, with the GPUs of this computer."""
        provider = provider or self.sign_up(f"{name}-provider")
        env = provider.env(self.server)
        token = run_json([SOUK, "provider", "add-node"], env)["token"]
        options = ["--server", self.server, "--name", name, "--price", price, "--data", str(self.agent_folder(name))]
        options += ["--device-kind", "gpu", "--executor", "process", "--allow-strangers"]
        options += ["--runtime-python", sys.executable]
        run([self.agent_program, "enrol", *options], {**env, "SOUK_ENROL_TOKEN": token})
        return provider


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # Not pytest's own folders: as root PostgreSQL runs as another user, which may not enter those.
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="souk-gpu-", dir="/tmp") as folder,
    ):
        if os.environ.get("SOUK_TEST_SERVERS") == "embedded":  # those are pytest's; `souk up` is to start its own
            patch.delenv("DATABASE_URL")
            patch.delenv("REDIS_URL")
        with WithoutInstall(Path(folder)) as market:
            provider = market.add_node("gpu", price="2.00")
            alice = market.sign_up("alice")
            market.deposit(alice, "10.00")
            souk = Souk(market.server, alice.key)
            yield World(market, provider, alice, souk, souk.offers()[0])
        assert market.left == []


def test_gpu_is_listed_with_what_it_was_seen_to_do(world: World) -> None:
    [device] = world.offer.devices
    print(device.model_dump_json(indent=1))
    assert device.kind == "gpu"
    assert device.model == torch.cuda.get_device_name(0)


def test_gpu_passes_its_first_check(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.provider.key}"}
    with httpx.Client(base_url=f"{world.market.server}/api/v1/provider", headers=headers, timeout=20) as api:
        check = wait_for_verdict(api, str(world.offer.node_id))
    print(json.dumps(check["findings"], indent=1))
    assert {finding["what"] for finding in check["findings"]} >= FINDINGS
    assert (check["state"], check["reason"]) == ("passed", "")


def test_training_runs_on_the_gpu_and_its_bill_is_verified(world: World) -> None:
    job = world.trained()
    print("".join(world.souk.stream(job.job_id, "events").text.splitlines(keepends=True)[-6:]))
    assert job.state == "completed", job
    bill = run_json([SOUK, "bill", str(job.job_id)], world.alice.env(world.market.server))
    print(bill)
    assert bill["verified"] is True


def test_what_was_trained_answers_from_the_gpu(world: World) -> None:
    section = {"model": {"job": str(world.trained().job_id)}, "replicas": {"min": 1, "max": 1}}
    launched = launch(world.souk, {"kind": "serve", "name": "chat", "resources": RESOURCES, "budget": BUDGET,
                                   "serve": section})  # fmt: skip
    endpoint = next(each for each in world.souk.endpoints() if each.job_id == launched.job_id)
    wait_for("a replica", lambda: world.souk.endpoint(endpoint.endpoint_id).replicas_ready == 1, READY_SECONDS)
    key = run_json([SOUK, "keys", "create", "app"], world.alice.env(world.market.server))["key"]
    client = openai.OpenAI(base_url=f"{world.market.operator['gateway_url']}/v1", api_key=key, timeout=60)
    answer = client.chat.completions.create(
        model=endpoint.model, messages=[{"role": "user", "content": "The "}], max_tokens=20
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    world.souk.cancel(launched.job_id)  # an agent that is stopped leaves its replicas to the next one
    wait_until(world.souk, launched, {"cancelled"})
