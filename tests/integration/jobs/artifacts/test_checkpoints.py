"""A checkpoint counts once it has the shape of what our own runtime writes, at a step that a node can have reached."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from jobs.artifacts import checkpoints
from jobs.artifacts.store import Store, prefix_for
from jobs.errors import ArtifactClosed, BadManifest
from jobs.models import Artifact, Job, Lease
from jobs.running import reports
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.facts import RUNTIME_FEATURES
from provider_agent.protocol import Reason
from tests import stage
from tests.integration.jobs.checkpointing import Files, genuine, run_next, save, sealed
from tests.integration.jobs.conftest import node_with_key

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.agent_urls")]

STEP = 10
ADAPTERS = {"rank": 4, "alpha": 32.0, "dropout": 0.0, "targets": ["all-linear"]}
Lie = Callable[[Lease], Files]


@pytest.fixture(autouse=True)
def store(local_store: Store) -> Store:
    return local_store


@pytest.fixture
def lease(alice: Organisation, bob: Node) -> Lease:
    """Of our own training of a hundred steps, running for a minute."""
    _, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=60)
    return Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)


def with_trainer(lease: Lease, **changes: Any) -> Files:
    files = genuine(lease, STEP)
    files["trainer.json"] = json.dumps(json.loads(files["trainer.json"]) | changes).encode()
    return sealed(lease, STEP, files)


def without(lease: Lease, path: str) -> Files:
    files = genuine(lease, STEP)
    del files[path]
    return sealed(lease, STEP, files)


def test_what_the_runtime_writes_is_a_checkpoint(lease: Lease) -> None:
    assert save(lease, STEP).state == "complete"


LIES: dict[str, Lie] = {
    "seven bytes": lambda lease: {"weights": b"7 bytes"},
    "seven bytes with a manifest": lambda lease: sealed(lease, STEP, {"weights": b"7 bytes"}),
    "a manifest of another step": lambda lease: sealed(lease, STEP, genuine(lease, STEP), step=STEP + 1),
    "a manifest of more ranks": lambda lease: sealed(lease, STEP, genuine(lease, STEP), world_size=64),
    "true for a number": lambda lease: sealed(lease, STEP, genuine(lease, STEP), nodes=True),
    "a manifest of other files": lambda lease: sealed(lease, STEP, genuine(lease, STEP), files=[]),
    "files that are no entries": lambda lease: sealed(lease, STEP, genuine(lease, STEP), files=[[], {"path": {}}, 3]),
    "a file more than the manifest names": lambda lease: sealed(lease, STEP, genuine(lease, STEP)) | {"more": b"x"},
    "a manifest that is no JSON": lambda lease: genuine(lease, STEP) | {"MANIFEST.json": b"[" * 100_000},
    "a name that no node can fetch": lambda lease: sealed(
        lease, STEP, genuine(lease, STEP) | {"__0_0.distcp.partial": b"x"}
    ),
    "a folder": lambda lease: sealed(lease, STEP, genuine(lease, STEP) | {"node-1/trainer.json": b"{}"}),
    "no metadata": lambda lease: without(lease, ".metadata"),
    "no tokenizer": lambda lease: without(lease, "tokenizer.json"),
    "a trainer of another step": lambda lease: with_trainer(lease, step=99),
    "a trainer of another seed": lambda lease: with_trainer(
        lease, config={"global_batch_size": 16, "sequence_length": 128, "seed": 7}
    ),
    "adapters of a job that trains all weights": lambda lease: with_trainer(
        lease, config={"global_batch_size": 16, "sequence_length": 128, "seed": 0, "lora": ADAPTERS}
    ),
    "a trainer without a configuration": lambda lease: with_trainer(lease, config=None),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_it_does_not_write_is_none_and_pays_nobody(lease: Lease, store: Store, lie: Lie) -> None:
    stage.bill(lease, ms=60_000)
    with pytest.raises(BadManifest, match="no checkpoint of the job"):
        save(lease, STEP, lie(lease), billable_ms=60_000)
    artifact = Artifact.objects.get()
    assert (artifact.state, store.sizes(prefix_for(artifact.pk))) == ("abandoned", {})
    reports.lose(lease.pk, Reason.NODE_SILENT, "silent")
    lease.refresh_from_db()
    assert (lease.state, lease.charge_units) == ("ended", 0)
    assert not Artifact.objects.resumable(lease.attempt.job).exists()


@pytest.mark.parametrize("saved", [{}, {"lora": ADAPTERS | {"rank": 8}}], ids=["none", "another rank"])
def test_a_checkpoint_of_adapters_is_of_those_that_the_job_trains(
    alice: Organisation, bob: Node, saved: dict[str, Any]
) -> None:
    Node.objects.update(facts=bob.facts | {"runtime_features": list(RUNTIME_FEATURES)})
    _, (lease,) = stage.running_job(alice, train={"model": "org/name", "lora": {"rank": 4}})
    stage.see_running(lease, seconds=60)
    lease = Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)
    pinned = json.loads(genuine(lease, STEP)["trainer.json"])["config"]
    with pytest.raises(BadManifest, match="says lora"):
        save(lease, STEP, with_trainer(lease, config=pinned | saved))
    files = genuine(lease, STEP + 1)
    trainer = json.loads(files["trainer.json"]) | {"config": pinned | {"lora": ADAPTERS}, "base": "0" * 64}
    files["trainer.json"] = json.dumps(trainer).encode()
    assert save(lease, STEP + 1, sealed(lease, STEP + 1, files)).state == "complete"


def test_one_that_was_refused_is_not_sent_again(lease: Lease) -> None:
    lie = LIES["no metadata"](lease)
    with pytest.raises(BadManifest):
        save(lease, STEP, lie)
    with pytest.raises(ArtifactClosed):
        save(lease, STEP, lie)
    assert save(lease, STEP + 1).state == "complete"


@pytest.mark.parametrize(("step", "why"), [(101, "has 100 steps"), (10**9, "has 100 steps")])
def test_no_step_lies_beyond_the_training(lease: Lease, step: int, why: str) -> None:
    with pytest.raises(BadManifest, match=why):
        save(lease, step)
    assert not Artifact.objects.exists()


def test_no_node_trains_faster_than_a_thousand_steps_a_second(alice: Organisation, bob: Node) -> None:
    _, (lease,) = stage.running_job(alice, work={"steps": 10**6}, budget={"max_total": "50.00"})
    stage.see_running(lease, seconds=60)
    with pytest.raises(BadManifest, match="cannot have come to step 100000"):
        save(lease, 100_000)
    assert save(lease, 60_000).state == "complete"


def test_a_resumed_attempt_saves_nothing_before_where_it_began(lease: Lease) -> None:
    save(lease, 50)
    job = Job.objects.get(pk=lease.attempt.job_id)
    reports.lose(lease.pk, Reason.NODE_SILENT, "silent")
    node_with_key("carols-node")
    second = run_next(job)
    for step in (50, 10):
        with pytest.raises(BadManifest, match="began at step 50"):
            save(second, step)
    assert save(second, 51).state == "complete"


def test_a_padded_checkpoint_makes_no_honest_one_too_small(lease: Lease) -> None:
    padded = genuine(lease, 50) | {"__9_9.distcp": bytes(1_000_000)}
    save(lease, 50, sealed(lease, 50, padded))
    job = Job.objects.get(pk=lease.attempt.job_id)
    reports.lose(lease.pk, Reason.NODE_SILENT, "silent")
    node_with_key("carols-node")
    assert save(run_next(job), 60).state == "complete"


def test_a_gangs_node_answers_for_its_own_part(alice: Organisation) -> None:
    owner = stage.organisation("bob")
    for name in ("one", "two"):
        node_with_key(name, fabric="rack", provider=owner)
    gang = {"gpus": 2, "nodes": 2, "kind": "any"}
    _, leases = stage.running_job(alice, resources=gang, budget={"max_total": "8.00"})
    ranks = sum(lease.device_count for lease in leases)
    first, second = leases
    trained = genuine(first, STEP)
    trained["trainer.json"] = json.dumps(json.loads(trained["trainer.json"]) | {"world_size": ranks}).encode()
    whole = {"world_size": ranks, "nodes": 2}
    shard = {"__2_0.distcp": b"weights"}
    with pytest.raises(BadManifest, match="says node_rank 0, it is 1"):
        save(second, STEP, sealed(second, STEP, shard, **whole, node_rank=0))
    assert save(first, STEP + 1, sealed(first, STEP + 1, _of_step(trained, STEP + 1), **whole)).state == "uploading"
    assert save(second, STEP + 1, sealed(second, STEP + 1, shard, **whole)).state == "complete"


def _of_step(files: Files, step: int) -> Files:
    trainer = json.loads(files["trainer.json"]) | {"step": step}
    return files | {"trainer.json": json.dumps(trainer).encode()}


def test_a_tokenizer_that_no_memory_holds_is_no_checkpoints(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checkpoints._BYTES_MAX, "tokenizer.json", 1)
    with pytest.raises(BadManifest, match=r"tokenizer\.json is too large to be read"):
        save(lease, STEP)
