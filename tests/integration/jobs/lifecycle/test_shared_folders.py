"""A shared host folder lacks what a job names: neither its customer nor its provider is to blame by one word."""

from __future__ import annotations

import pytest

from jobs.artifacts import resumes
from jobs.kinds.registry import kind_of
from jobs.models import Artifact, Job, Lease
from jobs.placing import placement
from jobs.quoting import quotes
from jobs.spec.kinds.eval import ENDPOINTS_FEATURE
from jobs.spec.kinds.shared_folders import FEATURE
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState, Reason
from runtimes.contract import ExitCode
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

LENT = {"lent": ["corpus"], "train": {"model": "tiny-llama", "data": "lent/corpus/books"}}
EVALUATION = {
    "kind": "eval",
    "train": None,
    "work": None,
    "lent": ["corpus"],
    "files": ["tasks.yaml"],
    "eval": {"models": "lent/corpus/llama", "tasks": "tasks.yaml"},
}


def lender(name: str, *, price: int = DOLLAR, provider: Organisation | None = None) -> Node:
    """A node that shares the folder, and whose agent looks there."""
    node = stage.node(name, price_usd_micros=price, provider=provider)
    node.facts = node.facts | {"lent": ["corpus"], "runtime_features": [FEATURE, "eval"]}
    node.save(update_fields=["facts"])
    return node


@pytest.fixture
def mallory() -> Organisation:
    """Her two nodes are the cheapest, and share an empty folder."""
    mallory = stage.organisation("mallory")
    for name in ("mallorys-first", "mallorys-second"):
        lender(name, provider=mallory)
    return mallory


@pytest.fixture
def job(alice: Organisation, mallory: Organisation) -> Job:
    lender("honest", price=2 * DOLLAR)
    return stage.submit(alice, stage.spec_of(**LENT))


def fail(job: Job, reason: Reason = Reason.BAD_INPUT, code: int | None = ExitCode.BAD_DATA) -> Lease:
    """The next attempt runs for ten minutes, for which its node has receipts, and ends so."""
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    lease.refresh_from_db()
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=600_000)
    stage.finish(lease, reason, exit_code=code)
    lease.refresh_from_db()
    job.refresh_from_db()
    return lease


def failures() -> dict[str, int]:
    return dict(Node.objects.values_list("name", "failures"))


@pytest.mark.parametrize("spec", [LENT, EVALUATION], ids=["train", "eval"])
def test_nodes_whose_agent_is_older_are_passed_over(alice: Organisation, bob: Node, spec: dict[str, object]) -> None:
    Node.objects.update(facts=bob.facts | {"lent": ["corpus"], "runtime_features": ["eval"]})
    refused = quotes.make_quote(stage.spec_of(**spec), alice)
    assert (refused.quote_id, [each.code for each in refused.plan.exclusions]) == (None, ["old_runtime"])
    lender("newer")
    assert quotes.make_quote(stage.spec_of(**spec), alice).quote_id is not None


@pytest.mark.parametrize(
    ("reason", "code"), [(Reason.BAD_INPUT, ExitCode.BAD_DATA), (Reason.BAD_CONFIG, ExitCode.BAD_CONFIG)]
)
def test_one_providers_word_is_paid_by_nobody_and_ends_no_job(
    job: Job, mallory: Organisation, reason: Reason, code: int
) -> None:
    lease = fail(job, reason, code)
    attempt = stage.newest_attempt(job)
    assert lease.node.provider.organisation == mallory
    assert (attempt.reason, attempt.fault, job.state) == ("input_unavailable", "network", "recovering")
    assert f"The node reported {reason.value}; what counts is input_unavailable." in attempt.message
    assert lease.charge_units == 0
    assert set(failures().values()) == {0}, "a customer who names a file that no folder has harms no provider"
    assert placement.request_of(job).demand.avoid == {
        *Node.objects.filter(name__startswith="mallorys").values_list("pk", flat=True)
    }
    (second,) = stage.place(job)
    assert second.node.name == "honest"
    stage.send_report(second, AttemptState.RUNNING)
    stage.finish(second)
    job.refresh_from_db()
    assert job.state == "completed"


def test_what_two_providers_say_is_the_customers_input(job: Job) -> None:
    fail(job)
    second = fail(job)
    assert second.node.name == "honest"
    assert (job.state, job.reason, stage.newest_attempt(job).fault) == ("failed", "bad_input", "customer")
    assert second.charge_units > 0


def test_a_provider_cannot_say_it_twice(alice: Organisation, mallory: Organisation) -> None:
    job = stage.submit(alice, stage.spec_of(**LENT, retry={"max_attempts": 3}))
    leases = [fail(job) for _ in range(3)]
    assert {lease.node.provider.organisation for lease in leases} == {mallory}
    assert (job.state, job.reason) == ("failed", "input_unavailable")
    assert sum(lease.charge_units for lease in leases) == 0


def test_a_failed_fetch_proves_nothing_of_a_shared_folder(job: Job) -> None:
    fail(job, Reason.INPUT_UNAVAILABLE, None)
    lease = fail(job)
    assert (lease.reported_reason, job.state) == ("input_unavailable", "recovering")


def test_input_of_the_customers_own_is_theirs_at_once(alice: Organisation, mallory: Organisation) -> None:
    """The job names the label, and reads nothing there by our runtime."""
    job = stage.submit(alice, stage.spec_of(lent=["corpus"]))
    lease = fail(job)
    assert (job.state, job.reason, lease.charge_units > 0) == ("failed", "bad_input", True)


def test_a_checkpoint_is_not_proven_bad_by_folders_that_hold_something_else(job: Job, alice: Organisation) -> None:
    """Two honest nodes resume with other data under the same label: see jobs/artifacts/resumes.py."""
    assert not kind_of(job).pins_input(job)
    own = stage.submit(alice, stage.spec_of())
    assert kind_of(own).pins_input(own)
    asked = stage.submit(alice, stage.spec_of(**EVALUATION))
    assert not kind_of(asked).pins_input(asked)


def trained(job: Job, *, step: int | None = 50) -> tuple[Lease, Artifact | None]:
    """The next attempt runs for ten minutes, saves a checkpoint if a step is given, and its node breaks."""
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    lease.refresh_from_db()
    stage.see_running(lease, seconds=600)
    stage.bill(lease, ms=600_000)
    saved = None if step is None else stage.checkpoint(job, lease, step=step, ms=600_000)
    stage.finish(lease, Reason.EXECUTOR_FAILED)
    job.refresh_from_db()
    return lease, saved


@pytest.fixture
def begun(alice: Organisation) -> Job:
    """An honest node trained it for ten minutes, and its node is not there any more. Mallory has five others."""
    first = lender("first")
    job = stage.submit(alice, stage.spec_of(**LENT, retry={"max_attempts": 10}))
    trained(job)
    Node.objects.filter(pk=first.pk).update(state="offline")
    provider = stage.organisation("mallory")
    for number in range(5):
        lender(f"mallorys-{number}", provider=provider)
    return job


def test_an_endpoint_beside_a_folder_makes_no_empty_one_pay(alice: Organisation, mallory: Organisation) -> None:
    lender("honest", price=2 * DOLLAR)
    facts = Node.objects.get(name="honest").facts
    Node.objects.update(facts=facts | {"runtime_features": [FEATURE, "eval", ENDPOINTS_FEATURE], "egress": True})
    models = ["lent/corpus/llama", {"endpoint": "https://market.example/v1", "model": "theirs"}]
    section = {"models": models, "tasks": "tasks.yaml"}
    job = stage.submit(alice, stage.spec_of(**EVALUATION | {"network": "public", "eval": section}))
    first = fail(job)
    assert first.node.provider.organisation == mallory
    assert (job.state, first.reported_reason, first.charge_units) == ("recovering", "input_unavailable", 0)
    second = fail(job)
    assert (second.node.name, job.state, job.reason) == ("honest", "failed", "bad_input")
    assert second.charge_units > 0


def test_a_node_that_saved_a_checkpoint_had_the_input_and_is_paid(job: Job) -> None:
    """Else a program that says so after hours of work would be trained for nothing."""
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    lease.refresh_from_db()
    stage.see_running(lease, seconds=3600)
    stage.bill(lease, ms=3_600_000)
    stage.checkpoint(job, lease, step=90, ms=3_500_000)
    stage.finish(lease, Reason.BAD_INPUT, exit_code=ExitCode.BAD_DATA)
    job.refresh_from_db()
    lease.refresh_from_db()
    assert (job.state, job.reason, lease.reported_reason) == ("failed", "bad_input", "bad_input")
    assert lease.charge_units > 0


def test_a_step_alone_pays_for_no_bad_input(job: Job) -> None:
    """Whose folder is empty may report one."""
    Job.objects.filter(pk=job.pk).update(progress={"attempt": 1, "step": 90})
    job.refresh_from_db()
    lease = fail(job)
    assert (job.state, lease.reported_reason, lease.charge_units) == ("recovering", "input_unavailable", 0)


@pytest.mark.parametrize("code", [ExitCode.BAD_DATA, None])
def test_a_resumed_attempt_without_the_data_condemns_no_checkpoint(begun: Job, code: int | None) -> None:
    saved = Artifact.objects.get(kind="checkpoint")
    lease = fail(begun, Reason.BAD_INPUT, code)
    assert lease.attempt.resume_artifact_id == saved.pk
    assert (begun.state, stage.newest_attempt(begun).reason) == ("recovering", "input_unavailable")
    honest = lender("honest", price=2 * DOLLAR)
    (second,) = stage.place(begun)
    assert (second.node_id, second.attempt.resume_artifact_id) == (honest.pk, saved.pk)


@pytest.mark.parametrize("is_saved", [True, False], ids=["a checkpoint", "a step"])
def test_no_second_word_counts_once_an_attempt_could_read_the_input(alice: Organisation, is_saved: bool) -> None:
    first = lender("first")
    job = stage.submit(alice, stage.spec_of(**LENT, retry={"max_attempts": 10}))
    trained(job, step=50 if is_saved else None)
    Node.objects.filter(pk=first.pk).update(state="offline")
    if not is_saved:
        Job.objects.filter(pk=job.pk).update(progress={"attempt": 1, "step": 50})
    for name in ("carol", "dave"):
        lender(name)
        lease = fail(job)
        assert (lease.node.name, job.state, lease.charge_units) == (name, "recovering", 0)


def test_a_word_without_a_code_avoids_all_of_its_provider(job: Job, mallory: Organisation) -> None:
    fail(job, Reason.BAD_INPUT, None)
    mallorys = Node.objects.filter(provider__organisation=mallory)
    assert placement.request_of(job).demand.avoid == set(mallorys.values_list("pk", flat=True))


def test_one_provider_sets_no_checkpoint_aside_however_often_it_fails(begun: Job) -> None:
    """Each of her words after the first is a try, so that there is an end of them."""
    saved = Artifact.objects.get(kind="checkpoint")
    for _ in range(9):
        assert begun.state == "recovering"
        fail(begun, Reason.BAD_CHECKPOINT, ExitCode.BAD_CHECKPOINT)
    assert begun.state == "recovering", "one try was the honest node's, and eight are repeated"
    mallorys = Node.objects.filter(name__startswith="mallorys")
    assert placement.request_of(begun).demand.avoid >= set(mallorys.values_list("pk", flat=True))
    fail(begun, Reason.BAD_CHECKPOINT, ExitCode.BAD_CHECKPOINT)
    saved.refresh_from_db()
    assert (begun.state, begun.reason, saved.condemned_at) == ("failed", "bad_checkpoint", None)


def test_four_providers_set_a_checkpoint_aside_and_nobody_loses_pay(begun: Job) -> None:
    saved = Artifact.objects.get(kind="checkpoint")
    Node.objects.filter(name__startswith="mallorys").update(state="offline")
    for number in range(resumes.FAILED_MAX):
        saved.refresh_from_db()
        assert saved.condemned_at is None
        lender(f"other-{number}")
        fail(begun, Reason.BAD_CHECKPOINT, ExitCode.BAD_CHECKPOINT)
    saved.refresh_from_db()
    assert saved.condemned_at is not None
    assert Lease.objects.get(node__name="first").charge_units > 0
    assert begun.state == "recovering"
