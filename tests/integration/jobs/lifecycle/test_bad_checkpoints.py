"""A checkpoint that cannot be resumed from is its uploader's doing: never the customer's, and no loss of older ones."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from jobs.artifacts import resumes
from jobs.artifacts.store import Store
from jobs.bills.bill import make_bill
from jobs.client.verify.bill import verify_bill
from jobs.kinds.registry import kind_of
from jobs.leases import leasing
from jobs.models import Artifact, ArtifactPart, Job, Lease
from jobs.placing import placement
from jobs.running import reports
from marketplace.accounts.models import Organisation
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node, Provider
from provider_agent.protocol import AttemptState, Reason
from tests import stage
from tests.integration.jobs.checkpointing import run_next, save
from tests.integration.jobs.conftest import node_with_key
from tests.row_states import create_in_state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.agent_urls")]

MINUTE_MS = 60_000
BAD = "checkpoint step-00000099 cannot be loaded"


@pytest.fixture(autouse=True)
def store(local_store: Store) -> Store:
    return local_store


@pytest.fixture
def job(alice: Organisation) -> Job:
    """Alice's training of a hundred steps, before there is a node for it."""
    node_with_key("honest")
    return stage.submit(alice, stage.spec_of(retry={"max_attempts": 3}))


def work(job: Job, *steps: int) -> tuple[Lease, list[Artifact]]:
    """The next attempt runs for a minute, for which its node has a receipt, and saves these steps."""
    lease = run_next(job)
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=MINUTE_MS)
    return lease, [save(lease, step, billable_ms=MINUTE_MS) for step in steps]


def lose(lease: Lease) -> None:
    """Its node is gone, and is not rented again."""
    reports.lose(lease.pk, Reason.NODE_SILENT, "silent")
    Node.objects.filter(pk=lease.node_id).update(state="offline")


def fail_to_resume(
    job: Job,
    node: str,
    reason: Reason = Reason.BAD_CHECKPOINT,
    *,
    exit_code: int = 76,
    provider: Organisation | None = None,
    facts: dict[str, Any] | None = None,
) -> Lease:
    """The next attempt runs on a new node, which has these facts too, and cannot resume."""
    made = node_with_key(node, provider=provider)
    Node.objects.filter(pk=made.pk).update(facts=made.facts | (facts or {}))
    lease = run_next(job)
    assert lease.node.name == node
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=MINUTE_MS)
    stage.finish(lease, reason, exit_code=exit_code, message=BAD)
    job.refresh_from_db()
    return lease


def charge_of(lease: Lease) -> int:
    return int(Lease.objects.get(pk=lease.pk).charge_units or 0)


def failures(name: str) -> int:
    return Node.objects.get(name=name).failures


def test_lies_cost_their_teller_alone(job: Job) -> None:
    """What issue and attack found: steps at the end of the training, by whoever vanishes then."""
    honest, genuine = work(job, 10, 20)
    lose(honest)
    node_with_key("mallory")
    liar, lies = work(job, 98, 99)
    assert stage.states_of(genuine) == ["complete", "complete"], "two lies pruned them once"
    lose(liar)
    assert charge_of(liar) > 0, "its shape was right"

    # One node's word is not enough: another one tries the same.
    first = fail_to_resume(job, "carol", Reason.BAD_INPUT)  # as agents of before call it
    assert (job.state, stage.newest_attempt(job).reason) == ("recovering", "bad_checkpoint")
    assert not Artifact.objects.filter(condemned_at__isnull=False).exists()
    assert placement.request_of(Job.objects.get(pk=job.pk)).demand.avoid >= {first.node_id}
    second = fail_to_resume(job, "dave")
    assert job.state == "recovering", "neither counts as one of the three attempts that the job may have"
    assert [each.step for each in Artifact.objects.filter(condemned_at__isnull=False)] == [99]

    # The next of them is a lie, too, and then the honest node's are left.
    for name in ("erin", "frank"):
        assert fail_to_resume(job, name).attempt.resume_artifact_id == lies[0].pk
    node_with_key("grace")
    last, _ = work(job, 30)
    assert last.attempt.resume_artifact_id == genuine[1].pk
    assert [charge_of(each) for each in (liar, first, second)] == [0, 0, 0]
    assert charge_of(honest) > 0
    assert (failures("mallory"), failures("honest"), failures("carol")) == (3, 1, 0)  # lost once, and two lies
    stage.finish(last)
    job.refresh_from_db()
    assert job.state == "completed"
    bill = make_bill(job)
    assert bill.total_units == charge_of(honest) + charge_of(last)
    assert verify_bill(bill).problem is None


def test_a_condemned_checkpoint_leaves_a_trace(job: Job) -> None:
    lease, (lie,) = work(job, 99)
    lose(lease)
    before = charge_of(lease)
    for name in ("carol", "dave"):
        fail_to_resume(job, name)
    event = Event.objects.get(subject_kind="condemned_checkpoint", subject_id=lie.pk)
    assert event.data["refunded_units"] == {str(lease.pk): str(before)}
    assert len(event.data["attempts"]) == 2


def test_who_condemns_alone_harms_nobodys_record_and_pay(job: Job) -> None:
    """The same provider's node fails again and again: the job goes on without the checkpoint, whoever was right."""
    lease, (saved,) = work(job, 50)
    lose(lease)
    paid = charge_of(lease)
    node_with_key("carol")
    carols = Node.objects.get(name="carol")
    for _ in range(resumes.FAILED_MAX):
        saved.refresh_from_db()
        assert saved.condemned_at is None
        again = run_next(job)
        assert again.node_id == carols.pk
        stage.finish(again, Reason.BAD_CHECKPOINT, exit_code=76)
    saved.refresh_from_db()
    assert saved.condemned_at is not None
    assert (failures("honest"), failures("carol"), charge_of(lease)) == (1, 0, paid)


def test_what_the_second_can_resume_from_stays_and_pays(job: Job) -> None:
    lease, (saved,) = work(job, 50)
    lose(lease)
    paid = charge_of(lease)
    fail_to_resume(job, "carol")
    node_with_key("dave")
    second, _ = work(job, 60)
    assert second.attempt.resume_artifact_id == saved.pk
    saved.refresh_from_db()
    assert (saved.condemned_at, saved.state, charge_of(lease)) == (None, "complete", paid)


def test_older_attempts_checkpoints_go_once_somebody_else_went_on(job: Job) -> None:
    first, old = work(job, 10, 20)
    lose(first)
    node_with_key("carol")
    second, newer = work(job, 30, 40)
    lose(second)
    assert stage.states_of(old) == ["complete", "complete"], "nobody has gone on from Carol's yet"
    node_with_key("dave")
    work(job, 50)
    assert stage.states_of([*old, *newer]) == ["deleted", "deleted", "complete", "complete"]


def test_a_providers_own_word_proves_nothing_about_its_checkpoints(alice: Organisation) -> None:
    bob = stage.organisation("bob")
    node_with_key("first", provider=bob)
    job = stage.submit(alice)
    saved = []
    for name, step in (("second", 10), ("third", 20), ("fourth", 30)):
        lease, (artifact,) = work(job, step)
        saved.append(artifact)
        lose(lease)
        node_with_key(name, provider=bob)
    assert stage.states_of(saved) == ["complete", "complete", "complete"]


@pytest.mark.parametrize("reason", [Reason.BAD_INPUT, Reason.BAD_CONFIG])
def test_a_first_attempts_bad_input_is_still_the_customers(job: Job, reason: Reason) -> None:
    lease = run_next(job)
    stage.finish(lease, reason)
    job.refresh_from_db()
    assert (job.state, stage.newest_attempt(job).fault) == ("failed", "customer")


@pytest.mark.parametrize("case", ["nothing to resume from", "it saved its own", "a customer's own program"])
def test_a_bad_checkpoint_that_cannot_be_is_a_lie(alice: Organisation, case: str) -> None:
    node_with_key("honest")
    changes: dict[str, Any] = stage.OWN_COMMAND if case == "a customer's own program" else {}
    job = stage.submit(alice, stage.spec_of(**changes))
    lease = run_next(job)
    if case != "nothing to resume from":
        save(lease, 10, {"weights": b"x"} if changes else None)
        lose(lease)
        node_with_key("mallory")
        lease = run_next(job)
    if case == "it saved its own":
        save(lease, 20)
    stage.finish(lease, Reason.BAD_CHECKPOINT)
    attempt = stage.newest_attempt(job)
    assert (attempt.reason, attempt.fault) == ("false_reason", "provider")


def test_no_price_changes_once_its_job_has_ended(job: Job) -> None:
    lease, _ = work(job, 99)
    lose(lease)
    paid = charge_of(lease)
    Artifact.objects.update(condemned_at="2026-01-01T00:00Z")
    Job.objects.filter(pk=job.pk).update(state="failed")
    assert leasing.recharge(Lease.objects.select_related("attempt__job").get(pk=lease.pk)) == 0
    assert charge_of(lease) == paid > 0


def test_a_running_lease_is_not_charged_again(job: Job) -> None:
    lease, _ = work(job, 20)
    assert leasing.recharge(lease) == 0
    assert Lease.objects.get(pk=lease.pk).charge_units is None
    stage.send_report(lease, AttemptState.STOPPING)


def test_a_third_lie_that_was_pruned_pays_no_more_than_two(job: Job) -> None:
    """Two are kept, and can be tried; a third was deleted, and paid for the whole attempt however often it failed."""
    liar, _ = work(job, 97, 98, 99)
    lose(liar)
    assert charge_of(liar) > 0
    for name in ("carol", "dave", "erin", "frank"):
        fail_to_resume(job, name)
    assert Artifact.objects.filter(condemned_at__isnull=False).count() == 2
    assert charge_of(liar) == 0


@pytest.mark.parametrize("is_proven", [True, False])
def test_of_many_lies_of_one_attempt_no_more_than_two_are_tried(alice: Organisation, is_proven: bool) -> None:
    """`keep` may be a hundred: each would be two to four attempts, unpaid, before the job goes on."""
    node_with_key("honest")
    checkpoint = {"every": "10 steps", "keep": 100}
    job = stage.submit(alice, stage.spec_of(retry={"max_attempts": 3}, checkpoint=checkpoint))
    honest, (genuine,) = work(job, 10)
    lose(honest)
    node_with_key("mallory")
    liar, lies = work(job, *range(90, 100))
    lose(liar)
    paid = charge_of(liar)
    names = [f"carol-{number}" for number in range(4 if is_proven else 8)]
    for name in names:
        fail_to_resume(job, name, exit_code=76 if is_proven else 65)
    node_with_key("grace")
    assert run_next(job).attempt.resume_artifact_id == genuine.pk
    assert all(each.condemned_at for each in Artifact.objects.filter(pk__in=[lie.pk for lie in lies]))
    assert charge_of(liar) == (0 if is_proven else paid), "the eight that nobody tried pay it no more than the two"
    assert charge_of(honest) > 0


def test_of_an_attempt_with_one_bad_checkpoint_the_one_before_pays(job: Job) -> None:
    lease = run_next(job)
    stage.see_running(lease, seconds=120)
    for step in (10, 20, 30):
        save(lease, step, billable_ms=step * 1000)
    stage.bill(lease, ms=60_000)
    lose(lease)
    for name in ("carol", "dave"):
        fail_to_resume(job, name)
    assert Lease.objects.get(pk=lease.pk).billable_ms == 20_000


def test_the_customers_own_nodes_take_nobodys_pay(job: Job, alice: Organisation) -> None:
    """Else whoever rents and lends gets a stranger's work for nothing, by two words of their own."""
    lease, (saved,) = work(job, 50)
    lose(lease)
    paid = charge_of(lease)
    for name in ("alices-first", "alices-second", "alices-third"):
        fail_to_resume(job, name, provider=alice)
    fail_to_resume(job, "carol")
    saved.refresh_from_db()
    assert saved.condemned_at is not None, "the job goes on without it"
    assert (charge_of(lease), failures("honest")) == (paid, 1)


def test_a_model_that_cannot_be_had_any_more_refunds_no_checkpoint(job: Job) -> None:
    """The model may lie on a hub, where its owner takes it away between two attempts."""
    lease, _ = work(job, 50)
    lose(lease)
    paid = charge_of(lease)
    for name in ("carol", "dave", "erin", "frank"):
        assert not Artifact.objects.filter(condemned_at__isnull=False).exists()
        fail_to_resume(job, name, Reason.BAD_INPUT, exit_code=65)
    assert Artifact.objects.filter(condemned_at__isnull=False).exists()
    assert (job.state, charge_of(lease), failures("honest")) == ("recovering", paid, 1)


@pytest.mark.parametrize(
    ("model", "is_paid"),
    [("org/name", True), (f"org/name@{'0a' * 20}", False), ("mine", True), ("tiny-llama", False)],
)
def test_a_model_that_its_owner_may_change_refunds_no_checkpoint(job: Job, model: str, is_paid: bool) -> None:
    """Two honest nodes find another model on the hub than the honest one before them."""
    lease, _ = work(job, 50)
    lose(lease)
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"train": {**job.spec["train"], "model": model}})
    paid = charge_of(lease)
    for name in ("carol", "dave", "erin", "frank"):
        fail_to_resume(job, name)
    assert Artifact.objects.filter(condemned_at__isnull=False).exists()
    assert charge_of(lease) == (paid if is_paid else 0)


def test_data_on_s3_that_their_owner_may_change_refund_no_checkpoint(job: Job) -> None:
    """Two honest nodes find other objects than the one before them, which stays paid; their tries are free."""
    lease, (saved,) = work(job, 50)
    lose(lease)
    train = {**job.spec["train"], "data": ["s3://alices/corpus"]}
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"network": "public", "train": train})
    job.refresh_from_db()
    facts = {"egress": True, "runtime_features": ["train.s3_data"]}
    paid = charge_of(lease)
    assert paid > 0
    failed = [fail_to_resume(job, name, facts=facts) for name in ("carol", "dave", "erin", "frank")]
    saved.refresh_from_db()
    assert saved.condemned_at is not None, "after four, the job goes on without it"
    assert (charge_of(lease), failures("honest")) == (paid, 1)
    assert [charge_of(each) for each in failed] == [0, 0, 0, 0]


@pytest.mark.parametrize("model", ["mine", "mine/", "./mine", "deep//mine"])
def test_a_model_among_the_files_is_pinned_however_it_is_written(alice: Organisation, model: str) -> None:
    node_with_key("honest")
    files = [{"path": path, "size": 2, "sha256": "0" * 64} for path in ("mine/config.json", "deep/mine/config.json")]
    given = create_in_state(Artifact, "complete", organisation=alice, kind="input")
    ArtifactPart.objects.create(artifact=given, files=files, is_complete=True)
    train = {"model": model, "data": "python-docs", "learning_rate": 1e-4, "sequence_length": 128}
    job = stage.submit(alice, stage.spec_of(train=train), input_artifact=given)
    assert kind_of(job).pins_input(job)


def test_a_liars_own_node_saves_no_pay_by_saying_so_first(job: Job) -> None:
    """It was one of two witnesses, and no judge: with it there was one judge, and the liar kept the pay."""
    mallory = stage.organisation("mallory")
    Node.objects.filter(name="honest").update(state="offline")
    node_with_key("mallorys", provider=mallory)
    liar, (lie,) = work(job, 50)
    lose(liar)
    fail_to_resume(job, "mallorys-other", provider=mallory)
    fail_to_resume(job, "accomplice", exit_code=65)
    fail_to_resume(job, "carol")
    lie.refresh_from_db()
    assert (lie.condemned_at, charge_of(liar) > 0) == (None, True)
    fail_to_resume(job, "dave")
    lie.refresh_from_db()
    assert (lie.condemned_at is not None, charge_of(liar)) == (True, 0)


def test_a_gang_is_one_judge_and_none_with_who_gains(alice: Organisation) -> None:
    """Two providers of one attempt saw one failure; with the uploader or the customer among them it proves nothing."""
    providers = [stage.organisation(name) for name in ("one", "two")]
    nodes = [stage.node(name, fabric="rack", provider=providers[0]) for name in ("first", "second")]
    _, leases = stage.running_job(alice, resources={"gpus": 2, "nodes": 2, "kind": "any"})
    other, _ = Provider.objects.get_or_create(organisation=providers[1])
    Node.objects.filter(pk=nodes[1].pk).update(provider=other)
    attempts = [lease.attempt_id for lease in leases]
    nobody: set[UUID] = set()
    assert resumes._count_judges(attempts, apart_from=nobody) == 1
    assert resumes._count_judges(attempts, apart_from={alice.pk}) == 1
    assert resumes._count_judges(attempts, apart_from={providers[1].pk}) == 0


@pytest.mark.parametrize(("has_loaded", "reason"), [(False, "bad_checkpoint"), (True, "out_of_memory")])
def test_no_memory_to_load_a_checkpoint_fails_no_job(job: Job, has_loaded: bool, reason: str) -> None:
    """What a stranger saved may take any memory; a node that loaded it had the job's own configuration to blame."""
    lease, (saved,) = work(job, 50)
    lose(lease)
    paid = charge_of(lease)
    node_with_key("carol")
    resumed = run_next(job)
    stage.see_running(resumed, seconds=60)
    if has_loaded:
        Job.objects.filter(pk=job.pk).update(progress={"attempt": resumed.attempt.number, "resumed_from": 50})
    stage.finish(resumed, Reason.OUT_OF_MEMORY, exit_code=77)
    job.refresh_from_db()
    assert (job.state, stage.newest_attempt(job).reason) == ("failed" if has_loaded else "recovering", reason)
    if has_loaded:
        return
    assert charge_of(resumed) == 0
    assert placement.request_of(job).demand.avoid >= {resumed.node_id}, "another node may have more memory"
    for name in ("dave", "erin", "frank"):
        fail_to_resume(job, name, Reason.OUT_OF_MEMORY, exit_code=77)
    saved.refresh_from_db()
    assert saved.condemned_at is not None, "the job goes on without it"
    assert charge_of(lease) == paid, "it may be the nodes"


def test_a_lie_that_only_lies_went_on_from_is_refunded(job: Job) -> None:
    """Mallory's second organisation goes on from her lie with another one: that proved the first for ever."""
    liar, _ = work(job, 50)
    lose(liar)
    node_with_key("accomplice")
    second, _ = work(job, 60)
    lose(second)
    for name in ("carol", "dave", "erin", "frank"):
        fail_to_resume(job, name)
    assert [charge_of(each) for each in (second, liar)] == [0, 0]
