"""A completed training whose file asks for it is evaluated: once, within its budget, and only while that is allowed."""

from __future__ import annotations

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.db import IntegrityError, connection, transaction
from rich.console import Console

from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.charging import limits
from billing.models import Account, Commitment
from jobs import evaluations, lifecycle
from jobs.api.job_views import show_job
from jobs.artifacts import prune, volumes
from jobs.client.views.job import job_view
from jobs.client.views.plan import plan_view
from jobs.models import Artifact, ArtifactPart, FollowingEvaluation, Job, JobInput, Quote
from jobs.placing import funding
from jobs.quoting import quotes
from jobs.running.assignments import make_assignment
from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import ApiKey, Membership, Role, User
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.facts import EVALUATION_FEATURE
from provider_agent.protocol import Assignment, Reason
from tests import stage
from tests.integration.jobs.api.api_clients import client_of, post, quoted
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = {"tasks": "tasks", "limit": 7, "budget": {"max_total": "0.50"}}


@pytest.fixture
def node():
    node = stage.node("bobs")
    node.facts |= {"runtime_features": ["inputs", EVALUATION_FEATURE]}
    node.save(update_fields=["facts"])
    return node


@pytest.fixture
def carol(alice):
    """A member of Alice's organisation, and the key with which she submits."""
    user = User.objects.create_user("carol@example.org")
    Membership.objects.create(organisation=alice, user=user, role=Role.MEMBER)
    return user


@pytest.fixture
def carols_key(alice, carol):
    return api_keys.issue(user=carol, organisation=alice, name="ci", scopes=["jobs:write"])[0]


def training(alice, *, user=None, key_id=None, files=("tasks",), **changes):
    """A training that runs, whose file asks for an evaluation, with its lease."""
    spec = stage.spec_of(files=list(files), **{"evaluation": ASKED} | changes)
    given = create_in_state(Artifact, "complete", organisation=alice, kind="input", completed_at=clock.now())
    quote_id = stage.quote(alice, spec)
    user = user or alice.members.earliest("created_at")
    job = lifecycle.submit(
        organisation=alice, user=user, key_id=key_id, spec=spec, quote_id=quote_id, input_artifact=given
    )
    (lease,) = stage.place(job)
    stage.send_report(lease, "preparing")
    stage.send_report(lease, "running")
    return job, lease


def complete(job, lease):
    """It leaves a result, which this returns."""
    output = create_in_state(
        Artifact,
        "complete",
        organisation=job.organisation,
        job=job,
        attempt=lease.attempt,
        kind="output",
        completed_at=clock.now(),
    )
    stage.finish(lease)
    job.refresh_from_db()
    assert job.state == "completed"
    return output


def completed(alice, **more):
    job, lease = training(alice, **more)
    complete(job, lease)
    return job


def due_now():
    """As if the wait before the next try were over."""
    FollowingEvaluation.objects.filter(next_try_at__isnull=False).update(next_try_at=clock.now())


def launched(job):
    return Job.objects.filter(evaluated_training__training=job).first()


def test_it_is_launched_once_and_each_names_the_other(alice, node, carol, carols_key):
    job, lease = training(alice, user=carol, key_id=carols_key.pk)
    assert show_job(job).evaluation.state == "planned"
    assert evaluations.launch_due() == 0
    output = complete(job, lease)
    assert show_job(job).evaluation.state == "due"
    assert (evaluations.launch_due(), evaluations.launch_due()) == (1, 0)
    found = launched(job)
    assert (found.kind, found.name, found.state) == ("eval", "tiny-evaluation", "queued")
    assert (found.submitted_by, found.submitted_with, found.cap_usd_micros) == (carol, carols_key.pk, 500_000)
    assert found.input_artifact == job.input_artifact, "the tasks are among the files of the training"
    assert found.spec["eval"]["models"] == ["trained/model"]
    assert (found.spec["eval"]["tasks"], found.spec["eval"]["limit"]) == (["tasks"], 7)
    assert Commitment.objects.get(job_id=found.pk).member_id == carol.pk, "her spend limits count it"
    shown = show_job(job).evaluation
    assert (shown.state, shown.job_id, shown.cap_usd_micros) == ("launched", found.pk, 500_000)
    assert show_job(found).evaluated_job_id == job.pk
    assert (show_job(found).evaluation, show_job(job).evaluated_job_id) == (None, None)
    (placed,) = stage.place(found)
    told = Assignment.model_validate_json(make_assignment(placed).payload)
    assert told.inputs == {"trained": output.pk}


def test_the_base_is_what_the_training_began_from_to_the_byte(alice, node):
    first, lease = stage.running_job(alice, name="first")
    began_from = complete(first, lease[0])
    features = ["inputs", EVALUATION_FEATURE, "train.open_learning_rate", "train.open_sequence_length"]
    Node.objects.update(facts=node.facts | {"runtime_features": features})
    base = {"inputs": {"base": {"job": "first"}}, "train": {"model": "base/model", "data": "python-docs"}}
    job = completed(alice, evaluation=ASKED | {"compare_with_base": True}, **base)
    other, lease = stage.running_job(alice, name="first")
    complete(other, lease[0])
    assert evaluations.launch_due() == 1
    found = launched(job)
    assert found.spec["eval"]["models"] == ["base/model", "trained/model"]
    assert JobInput.objects.get(job=found, folder="base").artifact == began_from, "not what has its name by now"


@pytest.mark.parametrize("version", [None, 1], ids=["the newest", "pinned"])
@pytest.mark.parametrize("is_over", [False, True], ids=["while it trains", "after it"])
def test_a_volume_deleted_meanwhile_hinders_no_evaluation(alice, node, version, is_over):
    began_from = create_in_state(Artifact, "complete", organisation=alice, kind="input", completed_at=clock.now())
    listed = [{"path": "model/config.json", "size": 1, "sha256": "0" * 64}]
    ArtifactPart.objects.create(artifact=began_from, files=listed, file_count=1, is_complete=True)
    volumes.put_upload(alice, "base", began_from.pk)
    features = ["inputs", EVALUATION_FEATURE, "train.open_learning_rate", "train.open_sequence_length"]
    Node.objects.update(facts=node.facts | {"runtime_features": features})
    given = {"volume": "base"} | ({"version": version} if version else {})
    base = {"inputs": {"base": given}, "train": {"model": "base/model", "data": "python-docs"}}
    job, lease = training(alice, evaluation=ASKED | {"compare_with_base": True}, **base)
    if not is_over:
        volumes.delete(alice, "base")
    complete(job, lease)
    if is_over:
        volumes.delete(alice, "base")
    assert evaluations.launch_due() == 1
    assert JobInput.objects.get(job=launched(job), folder="base").artifact == began_from
    began_from.refresh_from_db()
    assert began_from.state == "complete"


def test_a_quote_says_what_follows_and_what_it_may_cost(alice, node):
    view = quotes.make_quote(stage.spec_of(files=["tasks"], evaluation=ASKED), alice)
    assert (view.evaluation.name, view.evaluation.cap_usd_micros) == ("tiny-evaluation", 500_000)
    assert quotes.make_quote(stage.spec_of(), alice).evaluation is None


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_a_training_that_does_not_complete_launches_nothing(alice, node, how):
    job, lease = training(alice)
    if how == "cancelled":
        lifecycle.cancel(job.pk, actor="alice")
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    else:
        stage.finish(lease, Reason.BAD_CONFIG)
    job.refresh_from_db()
    assert job.state == how
    assert evaluations.launch_due() == 0
    assert not FollowingEvaluation.objects.exists()
    assert show_job(job).evaluation.state == "none"


def test_an_evaluation_is_followed_by_none(alice, node):
    job = completed(alice)
    evaluations.launch_due()
    found = launched(job)
    (lease,) = stage.place(found)
    stage.send_report(lease, "running")
    complete(found, lease)
    assert evaluations.launch_due() == 0
    assert list(FollowingEvaluation.objects.values_list("training", flat=True)) == [job.pk]


def revoke_key(job):
    api_keys.revoke(ApiKey.objects.get(pk=job.submitted_with))


def expire_key(job):
    ApiKey.objects.filter(pk=job.submitted_with).update(expires_at=clock.now() - timedelta(seconds=1))


def delete_key(job):
    ApiKey.objects.filter(pk=job.submitted_with).delete()


def remove_member(job):
    organisations.remove(job.organisation, job.submitted_by_id)


def make_bookkeeper(job):
    Membership.objects.filter(user=job.submitted_by).update(role=Role.BILLING)


def close_account(job):
    User.objects.filter(pk=job.submitted_by_id).update(is_active=False)


def delete_user(job):
    job.submitted_by.delete()


def delete_result(job):
    output = Artifact.objects.get(job=job, kind="output")
    prune.delete_for(job.organisation, output.pk, actor="alice")


def delete_input(job):
    prune.delete_for(job.organisation, job.input_artifact_id, actor="alice")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (revoke_key, "revoked"),
        (expire_key, "expired"),
        (delete_key, "revoked"),
        (remove_member, "no member"),
        (make_bookkeeper, "another role"),
        (close_account, "no account"),
        (delete_user, "no account"),
        (delete_result, "trained"),
        (delete_input, "not uploaded completely"),
    ],
)
def test_what_nobody_may_or_can_launch_any_more_is_given_up(alice, node, carol, carols_key, change, why):
    job = completed(alice, user=carol, key_id=carols_key.pk)
    change(job)
    assert evaluations.launch_due() == 0
    shown = show_job(job).evaluation
    assert (shown.state, shown.job_id, shown.next_try_at) == ("given_up", None, None)
    assert why in shown.message
    due_now()
    assert evaluations.launch_due() == 0
    job.refresh_from_db()
    assert (job.state, Job.objects.count()) == ("completed", 1)


def test_too_little_money_is_waited_for_and_then_it_goes_on(alice, node):
    job = completed(alice, evaluation=ASKED | {"budget": {"max_total": "80.00"}})
    assert evaluations.launch_due() == 0
    shown = show_job(job).evaluation
    assert (shown.state, shown.tries) == ("due", 1)
    assert "missing" in shown.message
    assert evaluations.launch_due() == 0, "not before its time"
    deposits.credit(alice.pk, 100 * stage.DOLLAR, reference="more", actor="operator")
    due_now()
    assert evaluations.launch_due() == 1
    assert show_job(job).evaluation.message == ""


def test_a_members_spend_limit_holds_for_it_too(alice, node, carol):
    limits.set_limit(alice.pk, member_id=carol.pk, period="month", amount=2_200_000, actor="alice")
    job = completed(alice, user=carol, evaluation=ASKED | {"budget": {"max_total": "2.21"}})
    assert evaluations.launch_due() == 0
    assert "limit" in show_job(job).evaluation.message
    assert Commitment.objects.count() == 1


def test_where_nothing_fits_it_is_tried_a_bounded_number_of_times(alice, node):
    job = completed(alice)
    Node.objects.update(facts={"runtime_features": []})
    waits = []
    for _ in range(evaluations.TRIES_MAX - 1):
        due_now()
        before = clock.now()
        assert evaluations.launch_due() == 0
        waits.append((show_job(job).evaluation.next_try_at - before).total_seconds())
    assert 60 <= waits[0] < 65 <= 120 <= waits[1] < 125
    assert sum(waits) < 86_400
    assert max(waits) == pytest.approx(evaluations.WAIT_MAX.total_seconds(), abs=5)
    due_now()
    evaluations.launch_due()
    shown = show_job(job).evaluation
    assert (shown.state, shown.tries) == ("given_up", evaluations.TRIES_MAX)
    assert "1 " in shown.message and "eval" in shown.message, "which says why nothing fits"


def test_two_workers_at_once_launch_one(alice, node, monkeypatch):
    job = completed(alice)
    both, quote_now = threading.Barrier(2, timeout=30), lifecycle.quote_now

    def quote_and_wait(*given, **more):
        found = quote_now(*given, **more)
        both.wait()
        return found

    monkeypatch.setattr(lifecycle, "quote_now", quote_and_wait)
    made = []

    def work():
        made.append(evaluations.try_to_launch(job.pk))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Quote.objects.filter(spec__kind="eval").count() == 2, "both came as far as the lock"
    assert len([each for each in made if each is not None]) == 1
    assert Job.objects.filter(kind="eval").count() == Commitment.objects.count() - 1 == 1


def test_a_worker_that_dies_in_between_leaves_nothing_and_the_next_one_launches_it(alice, node, monkeypatch):
    class Killed(BaseException):
        pass

    job, submit = completed(alice), lifecycle.submit

    def submit_and_die(**given):
        submit(**given)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(lifecycle, "submit", submit_and_die)
        with pytest.raises(Killed):
            evaluations.launch_due()
    assert not Job.objects.filter(kind="eval").exists()
    assert FollowingEvaluation.objects.get().tries == 0
    assert evaluations.launch_due() == 1
    assert launched(job) is not None


def test_a_fault_of_ours_is_logged_counted_and_hides_nothing_of_others(alice, node, monkeypatch):
    bad, good = completed(alice), completed(alice)
    real = evaluations._spec_after

    def fail(job):
        if job.pk == bad.pk:
            raise ZeroDivisionError
        return real(job)

    monkeypatch.setattr(evaluations, "_spec_after", fail)
    assert evaluations.launch_due() == 1
    assert launched(good) is not None
    shown = show_job(bad).evaluation
    assert (shown.state, shown.tries, shown.message) == ("due", 1, evaluations.OUR_FAULT)


def test_the_database_knows_one_evaluation_of_a_training_and_no_half_state(alice, node):
    job = completed(alice)
    with pytest.raises(IntegrityError), transaction.atomic():
        FollowingEvaluation.objects.create(training=job, next_try_at=clock.now())
    with pytest.raises(IntegrityError, match="due_launched_or_given_up"), transaction.atomic():
        FollowingEvaluation.objects.update(next_try_at=None)


def test_a_key_that_is_revoked_over_the_api_launches_nothing_more(alice, node):
    owner, work = client_of(alice), client_of(alice, ["jobs:read", "jobs:write"])
    quote = quoted(work, evaluation=ASKED, files=["tasks"])
    assert quote["evaluation"] == {"name": "tiny-evaluation", "cap_usd_micros": 500_000}
    given = create_in_state(Artifact, "complete", organisation=alice, kind="input", completed_at=clock.now())
    body = {"spec": quote["spec"], "quote_id": quote["quote_id"], "input_artifact_id": str(given.pk)}
    shown = post(work, "/jobs", body, key="once").json()
    assert shown["evaluation"]["state"] == "planned"
    job = Job.objects.get(pk=shown["job_id"])
    assert job.submitted_with is not None
    key = ApiKey.objects.get(pk=job.submitted_with)
    assert key.scopes == ["jobs:read", "jobs:write"]
    (lease,) = stage.place(job)
    stage.send_report(lease, "running")
    assert owner.delete(f"/api/v1/api-keys/{key.pk}").status_code in {200, 204}
    complete(job, lease)
    evaluations.launch_due()
    seen = owner.get(f"/api/v1/jobs/{job.pk}").json()
    assert (seen["state"], seen["evaluation"]["state"]) == ("completed", "given_up")
    assert not Job.objects.filter(kind="eval").exists()
    again = post(owner, f"/jobs/{job.pk}/retry", key="again").json()
    assert Job.objects.get(pk=again["job_id"]).submitted_with != key.pk, "who does it again answers for it"


def test_a_person_reads_what_follows_and_why_not(alice, node):
    def lines(job):
        out = StringIO()
        Console(file=out, width=200).print(job_view(show_job(job)))
        return out.getvalue()

    view = quotes.make_quote(stage.spec_of(files=["tasks"], evaluation=ASKED), alice)
    out = StringIO()
    Console(file=out, width=200).print(plan_view(view))
    assert "tiny-evaluation is submitted: an evaluation, for at most $0.50 more" in out.getvalue()
    job, lease = training(alice, evaluation=ASKED | {"budget": {"max_total": "80.00"}})
    assert "follows when this has completed, for at most $80.00" in lines(job)
    complete(job, lease)
    assert "is launched soon" in lines(job)
    evaluations.launch_due()
    assert "waits, and is tried again at" in lines(job)
    assert "does not cover the job's cap" in lines(job)
    deposits.credit(alice.pk, 100 * stage.DOLLAR, reference="more", actor="operator")
    due_now()
    evaluations.launch_due()
    found = launched(job)
    assert f"evaluation {found.pk}" in lines(job)
    assert f"evaluates {job.pk}" in lines(found)


def test_a_frozen_balance_pays_for_no_evaluation_either(alice, node):
    job = completed(alice)
    accounts = Account.objects.filter(owner_id=alice.pk, kind=AccountKind.CUSTOMER_AVAILABLE)
    accounts.update(is_frozen=True)
    evaluations.launch_due()
    found = launched(job)
    assert stage.place(found) == [], "as any other job of theirs"
    assert (found.state, found.waiting_for) == ("queued", funding._FROZEN)
