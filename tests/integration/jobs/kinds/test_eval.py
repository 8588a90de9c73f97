"""An evaluation goes all the way through the marketplace, only to nodes that have the harness."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs import evaluations, lifecycle, sweeps
from jobs.artifacts import inputs
from jobs.artifacts.choice import get_store
from jobs.artifacts.store import Store, key_for
from jobs.errors import BadManifest
from jobs.kinds.eval import ANSWER_BYTES_MIN, ANSWERS_FILE, Eval
from jobs.models import Artifact, ArtifactPart, Job, Lease, Stream
from jobs.placing import placement
from jobs.quoting import quotes
from jobs.running import reports
from jobs.running.streams import read_stream
from jobs.spec import Spec, canonical, from_wire, parse
from jobs.spec.kinds.eval import ENDPOINTS_FEATURE
from jobs.states import JOB_ENDS
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from marketplace.nodes.watching import liveness
from provider_agent.facts import EVALUATION_FEATURE
from provider_agent.protocol import ArtifactFile, Reason
from runtimes.evaluate import answers
from tests import stage
from tests.integration.jobs.checkpointing import Files, run_next, save, sealed
from tests.integration.jobs.conftest import node_with_key
from tests.integration.jobs.kinds.conftest import eventually
from tests.integration.runtimes.evaluate.worlds import EXAMPLES, make_model

pytestmark = pytest.mark.django_db(transaction=True)

STEP = 10
PROGRAM_SECONDS_MAX = 300.0  # a training and an evaluation, each on a machine that does much else
NEEDS_HARNESS = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="needs the extra eval")


def evaluation(**changes: Any) -> Spec:
    """A job file of Alice's."""
    section = {"models": ["base", "tuned"], "tasks": ["tasks"], "limit": 3}
    return from_wire(
        {
            "kind": "eval",
            "name": "look",
            "resources": {"kind": "any", "isolation": "none"},
            "budget": {"max_total": "1.00"},
            "files": ["base", "tuned", "tasks"],
            "eval": section | changes,
        }
    )


@NEEDS_HARNESS
@pytest.mark.slow
def test_an_evaluation_is_placed_run_and_its_result_kept(alice: Organisation, bobs_node: Node, tmp_path: Path) -> None:
    eventually(lambda: EVALUATION_FEATURE in Node.objects.get(pk=bobs_node.pk).facts["runtime_features"])
    spec = evaluation()
    given = send_input(alice, input_files(tmp_path))
    view = quotes.make_quote(spec, alice)
    assert view.quote_id is not None, view.plan
    user = alice.members.first()
    job = lifecycle.submit(organisation=alice, user=user, spec=spec, quote_id=view.quote_id, input_artifact=given)
    assert placement.place_batch() == 1

    def is_over() -> bool:
        liveness.flush_beats()
        sweeps.sweep_jobs()
        job.refresh_from_db()
        return job.state not in {"queued", "placed", "running"}

    eventually(is_over)
    assert (job.kind, job.state) == ("eval", "completed"), job.message
    files = output_files(Artifact.objects.get(job=job, kind="output", state="complete"))
    assert set(files) == {"results.json", "samples.jsonl", "report.html", "run.json"}
    results, run = json.loads(files["results.json"]), json.loads(files["run.json"])
    assert [model["name"] for model in results["models"]] == ["base", "tuned"]
    assert results["settings"]["limit"] == 3
    assert job.progress["step"] == run["computed"] > 0
    saved = Artifact.objects.filter(job=job, kind="checkpoint", state="complete").latest("step")
    events = [json.loads(line) for line in read_stream(job, Stream.EVENT).text.splitlines()]
    steps = [event["step"] for event in events if event["event"] == "checkpointed"]
    assert steps[-1] == run["computed"], "every answer was kept, for whatever might have come between"
    assert saved.step in steps, "what was saved last may still have been on its way when the output was complete"
    assert Lease.objects.get(attempt__job=job).charge_usd_micros > 0


@NEEDS_HARNESS
@pytest.mark.slow
@pytest.mark.soak  # one runs above; jobs/test_following_evaluations.py has that it follows
def test_what_a_training_left_is_evaluated_by_itself(alice: Organisation, bobs_node: Node) -> None:
    eventually(lambda: EVALUATION_FEATURE in Node.objects.get(pk=bobs_node.pk).facts["runtime_features"])
    spec = parse((EXAMPLES.parent / "train-evaluated.yaml").read_text())
    texts = (EXAMPLES.parent / "conversations.jsonl").read_bytes()
    tasks = {f"eval-tasks/{path.name}": path.read_bytes() for path in EXAMPLES.iterdir()}
    given = send_input(alice, tasks | {"conversations.jsonl": texts})
    job = stage.submit(alice, spec, input_artifact=given)
    found: list[Job] = []
    for _ in range(2):
        assert placement.place_batch() == 1
        found.append(eventually(lambda: ended_after(found), seconds=PROGRAM_SECONDS_MAX))
        assert found[-1].state == "completed", found[-1].message
        assert evaluations.launch_due() == (1 if len(found) == 1 else 0)
    training, evaluation = found
    assert (training.pk, evaluation.name) == (job.pk, "taught-evaluation")
    files = output_files(Artifact.objects.get(job=evaluation, kind="output", state="complete"))
    results = json.loads(files["results.json"])
    assert [model["name"] for model in results["models"]] == ["trained/model"]
    assert len(json.loads(files["run.json"])["versions"]) > 0
    charged = [Lease.objects.get(attempt__job=each).charge_usd_micros for each in found]
    assert 0 < charged[0] <= 1_000_000
    assert 0 < charged[1] <= 500_000


def ended_after(before: list[Job]) -> Job | None:
    """The job that ended and is not among these."""
    liveness.flush_beats()
    sweeps.sweep_jobs()
    others = Job.objects.exclude(pk__in=[each.pk for each in before])
    return others.filter(state__in=JOB_ENDS).first()


def test_a_node_without_the_harness_is_passed_over_and_the_reason_is_said(alice: Organisation) -> None:
    stage.node("bobs-node")
    view = quotes.make_quote(evaluation(), alice)
    assert view.quote_id is None
    assert "eval" in str(view.plan)
    Node.objects.update(facts={"runtime_features": [EVALUATION_FEATURE]})
    assert quotes.make_quote(evaluation(), alice).quote_id is not None


@pytest.mark.urls("tests.agent_urls")
def test_a_checkpoint_of_answers_counts_and_one_of_anything_else_does_not(
    alice: Organisation, bob: Node, local_store: Store
) -> None:
    assert (answers.ANSWERS_FILE, answers.LINE_BYTES_MIN) == (ANSWERS_FILE, ANSWER_BYTES_MIN)
    assert Eval.checkpoint_files is not None
    Node.objects.update(facts=bob.facts | {"runtime_features": [EVALUATION_FEATURE]})
    job = stage.submit(alice, evaluation())
    (placed,) = stage.place(job)
    stage.send_report(placed, "running")
    stage.see_running(placed, seconds=60)
    lease = Lease.objects.select_related("attempt__job", "node").get(pk=placed.pk)
    genuine = answers_of(30)
    too_few: Files = {ANSWERS_FILE: genuine[ANSWERS_FILE][: ANSWER_BYTES_MIN * STEP]}
    lies = [genuine | {"more.bin": b"x"}, {"trainer.json": b"{}"}, {}, {ANSWERS_FILE: b""}]
    for number, lie in enumerate(lies):
        with pytest.raises(BadManifest, match="no checkpoint of the job"):
            save(lease, STEP + number, sealed(lease, STEP + number, lie))
    with pytest.raises(BadManifest, match="have 910 bytes, and 15 steps take at least 1365"):
        save(lease, STEP + 5, sealed(lease, STEP + 5, too_few))
    with pytest.raises(BadManifest, match="says step"):
        save(lease, STEP + 10, sealed(lease, STEP, genuine))
    assert save(lease, STEP + 20, sealed(lease, STEP + 20, genuine)).state == "complete"


ENDPOINT = {"endpoint": "https://market.example/v1", "model": "theirs"}


@pytest.mark.urls("tests.agent_urls")
def test_an_endpoint_that_refuses_later_is_the_customers_and_condemns_no_checkpoint(
    alice: Organisation, local_store: Store
) -> None:
    """Else its owner would have resumed attempts for nothing, and four of them would lose the answers."""
    asker("first")
    job = stage.submit(alice, endpoint_evaluation(retry={"on": ["bad_input"]}))
    first = run_next(job)
    stage.see_running(first, seconds=60)
    stage.bill(first, ms=60_000)
    saved = save(first, STEP, sealed(first, STEP, answers_of(STEP)), billable_ms=60_000)
    reports.lose(first.pk, Reason.NODE_SILENT, "silent")
    Node.objects.filter(pk=first.node_id).update(state="offline")
    asker("second")
    for _ in range(2):
        lease = run_next(job)
        assert lease.attempt.resume_artifact_id == saved.pk
        stage.see_running(lease, seconds=60)
        stage.bill(lease, ms=60_000)
        stage.finish(lease, Reason.BAD_INPUT, exit_code=65)
        attempt = stage.newest_attempt(job)
        assert (attempt.reason, attempt.fault) == ("bad_input", "customer")
        assert Lease.objects.get(pk=lease.pk).charge_units > 0
        saved.refresh_from_db()
        assert saved.condemned_at is None
        job.refresh_from_db()
        assert job.state == "recovering"


def test_a_node_that_cannot_ask_endpoints_is_passed_over(alice: Organisation) -> None:
    node, spec = asker("bobs-node"), endpoint_evaluation()
    assert quotes.make_quote(spec, alice).quote_id is not None
    for lacking in ({"runtime_features": [EVALUATION_FEATURE]}, {"egress": False}):
        Node.objects.update(facts=node.facts | lacking)
        assert quotes.make_quote(spec, alice).quote_id is None


def endpoint_evaluation(**changes: Any) -> Spec:
    """A job file of Alice's that asks an endpoint alone."""
    section = {"models": [ENDPOINT], "tasks": ["tasks"]}
    body = canonical(evaluation()) | {"network": "public", "files": ["tasks"], "eval": section}
    return from_wire(body | changes)


def asker(name: str) -> Node:
    """A node whose runtime asks endpoints, and that lets jobs reach the internet."""
    node = node_with_key(name)
    node.facts |= {"runtime_features": [EVALUATION_FEATURE, ENDPOINTS_FEATURE], "egress": True}
    node.save(update_fields=["facts"])
    return node


def answers_of(count: int) -> Files:
    """The files of a checkpoint of so many answers, without the manifest."""
    lines = [json.dumps({"request": f"{number:064x}", "answer": ""}, separators=(",", ":")) for number in range(count)]
    return {ANSWERS_FILE: "".join(f"{line}\n" for line in lines).encode()}


def input_files(tmp_path: Path) -> dict[str, bytes]:
    """Two models and the tasks of the examples, as they lie below input/."""
    make_model(tmp_path / "base", seed=1)
    make_model(tmp_path / "tuned", seed=2)
    found = {f"tasks/{path.name}": path.read_bytes() for path in EXAMPLES.iterdir()}
    for name in ("base", "tuned"):
        found |= {f"{name}/{path.name}": path.read_bytes() for path in (tmp_path / name).iterdir()}
    return found


def send_input(alice: Organisation, files: dict[str, bytes]) -> Artifact:
    """As the client does."""
    entries = [
        ArtifactFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in sorted(files.items())
    ]
    artifact = inputs.announce_input(alice, entries)
    etags = {}
    for upload in inputs.begin_input(alice, artifact.id):
        (part,) = upload.parts
        etags[upload.path] = [httpx.put(part.url, content=files[upload.path]).headers["ETag"].strip('"')]
    return inputs.complete_input(alice, artifact.id, etags)


def output_files(artifact: Artifact) -> dict[str, bytes]:
    """Every file of an artifact of one node."""
    part = ArtifactPart.objects.get(artifact=artifact)
    return {
        file["path"]: get_store().read(key_for(artifact.pk, 0, index), file["size"])
        for index, file in enumerate(part.files)
    }
