"""The lifecycle of jobs/lifecycle.py, driven by reports: the happy path first, then what the customer does."""

from __future__ import annotations

import json

import pytest

from billing.account_kinds import AccountKind
from billing.books.balances import balance, trial_balance
from jobs import lifecycle
from jobs.errors import InputNotReady, JobEnded, NotEnoughMoney, QuoteUsed
from jobs.leases.failure_rate import MEAN_SECONDS_MIN, mean_seconds_to_failure
from jobs.models import Artifact, Job, Lease, LeaseDevice
from jobs.running import assignments, reports
from jobs.running.events import follow_events
from jobs.spec import from_wire
from marketplace.foundation import signing
from marketplace.foundation.errors import BadRequest
from marketplace.foundation.models import Event
from marketplace.nodes.models import Node
from provider_agent.facts import EVALUATION_FEATURE, RUNTIME_FEATURES
from provider_agent.protocol import AttemptState, Reason, verify_assignment
from tests import stage
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_that_completes_pays_its_provider_to_the_micro_dollar(alice, bob):
    job, (lease,) = stage.running_job(alice)
    assert job.state == "running"
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 3 * DOLLAR  # the cap is held, not charged
    stage.see_running(lease, seconds=1800)
    stage.bill(lease, ms=1_800_000)  # half an hour of two devices at a dollar each
    stage.finish(lease)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("completed", "completed")
    assert stage.earned(bob) == 900_000
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 4 * DOLLAR
    assert set(trial_balance().values()) == {0}
    assert not LeaseDevice.objects.filter(is_live=True).exists()


def test_a_training_that_ends_early_is_completed_and_paid_for_what_it_took(alice, bob):
    bob.facts |= {"runtime_features": list(RUNTIME_FEATURES)}
    bob.save(update_fields=["facts"])
    job, (lease,) = stage.running_job(alice, train={"early_stop": {"export_best": True}})
    stage.see_running(lease, seconds=1800)
    stage.bill(lease, ms=1_800_000)
    lines = [
        {"event": "started", "steps_total": 100},
        {"event": "step", "step": 40, "loss": 2.0},
        {"event": "evaluated", "step": 40, "loss": 2.5},
        {"event": "stopped_early", "step": 40, "steps_total": 100, "best_step": 10, "best_loss": 2.25},
        {"event": "finished", "step": 40, "loss": 2.0},
    ]
    follow_events(lease, 0, "".join(json.dumps(line) + "\n" for line in lines).encode())
    stage.finish(lease)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("completed", "completed")
    assert (job.progress["step"], job.progress["steps_total"]) == (40, 40)
    assert stage.earned(bob) == 900_000
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 4 * DOLLAR


def test_every_move_of_a_job_is_an_event(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.finish(lease)
    moves = Event.objects.filter(subject_kind="job", subject_id=job.id).order_by("id")
    assert list(moves.values_list("to_state", flat=True)) == ["queued", "placed", "running", "completed"]


def test_submit_without_the_money_says_how_much_is_missing_and_changes_nothing(bob):
    poor = stage.organisation("poor", usd_micros=DOLLAR // 2)
    with pytest.raises(NotEnoughMoney) as refused:
        stage.submit(poor)
    assert refused.value.details["missing_usd_micros"] == 1_500_000
    assert refused.value.status == 402
    assert not Job.objects.exists()


def test_one_quote_makes_one_job(alice, bob):
    job = stage.submit(alice)
    with pytest.raises(QuoteUsed):
        lifecycle.submit(organisation=alice, user=None, spec=stage.spec_of(), quote_id=job.quote_id)


def test_an_input_that_is_still_uploading_cannot_be_submitted(alice, bob):
    draft = Artifact.objects.create(organisation=alice, kind="input")
    with pytest.raises(InputNotReady):
        stage.submit(alice, input_artifact=draft)


def test_the_assignment_is_signed_for_this_node_and_carries_the_job_and_its_secrets(alice, bob):
    job = stage.submit(alice, stage.spec_of(secrets=["HF_TOKEN"]), secrets={"HF_TOKEN": "s3cret"})
    (lease,) = stage.place(job)
    _version, (wanted,), forget = assignments.desired_state(bob, [])
    assignment = verify_assignment(signing.server_public_key_hex(), wanted.assignment)
    assert (wanted.action, forget) == ("run", [])
    assert (assignment.node_id, assignment.lease_id, assignment.fence) == (bob.id, lease.id, lease.fence)
    assert assignment.secrets == {"HF_TOKEN": "s3cret"}
    assert assignment.device_uuids == ["bobs-node-0", "bobs-node-1"]
    assert assignment.program.config["steps"] == 100
    job.refresh_from_db()
    assert "s3cret" not in job.sealed_secrets


LOADERS = ("PYTHONPATH", "PYTHONHOME", "HOME", "PATH", "LD_PRELOAD", "OPENSSL_CONF", "NCCL_NET_PLUGIN", "HF_ENDPOINT")


@pytest.mark.parametrize("is_own", [False, True], ids=["our runtime", "a command"])
def test_no_customer_loads_code_into_our_own_runtime_by_a_variable(alice, bob, is_own):
    """Else their code would end it in a way that counts as the node's doing, and be free."""
    variables = dict.fromkeys(LOADERS, "input")
    spec = stage.spec_of(env=variables, secrets=["NODE_OPTIONS"], **(stage.OWN_COMMAND if is_own else {}))
    (lease,) = stage.place(stage.submit(alice, spec, secrets={"NODE_OPTIONS": "-r input/x"}))
    signed = assignments.make_assignment(lease)
    assignment = verify_assignment(signing.server_public_key_hex(), signed)
    given = {**assignment.env, **assignment.secrets}
    assert given == ({**variables, "NODE_OPTIONS": "-r input/x"} if is_own else {})


@pytest.mark.parametrize("data", ["s3://alices/corpus", "python-docs"])
def test_a_training_is_given_the_variables_of_s3_where_its_data_are_there(alice, bob, data):
    bob.facts |= {"runtime_features": list(RUNTIME_FEATURES), "egress": True}
    bob.save(update_fields=["facts"])
    of_s3 = {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL_S3": "https://s3.example"}
    keys = {"AWS_ACCESS_KEY_ID": "AKIAALICE", "AWS_SECRET_ACCESS_KEY": "alices-very-own-secret"}
    others = {"AWS_CONFIG_FILE": "input/config", "AWS_PROFILE": "bob", "AWS_CA_BUNDLE": "input/ca.pem"}
    spec = stage.spec_of(network="public", train={"data": data}, env=of_s3 | others, secrets=[*keys, "AWS_ROLE_ARN"])
    (lease,) = stage.place(stage.submit(alice, spec, secrets=keys | {"AWS_ROLE_ARN": "arn:aws:iam::1:role/bob"}))
    assignment = verify_assignment(signing.server_public_key_hex(), assignments.make_assignment(lease))
    has_s3 = data != "python-docs"
    assert (assignment.env, assignment.secrets) == ((of_s3, keys) if has_s3 else ({}, {}))
    assert "alices-very-own-secret" not in json.dumps(assignment.program.config)


def test_an_endpoints_key_reaches_the_evaluation_under_a_name_that_loads_nothing(alice, bob):
    bob.facts |= {"runtime_features": [*RUNTIME_FEATURES, EVALUATION_FEATURE], "egress": True}
    bob.save(update_fields=["facts"])
    endpoint = {"endpoint": "https://market.example/v1", "model": "theirs", "key": "PYTHONPATH"}
    spec = from_wire(
        {
            "kind": "eval",
            "name": "asks",
            "resources": {"kind": "any"},
            "budget": {"max_total": "1.00"},
            "network": "public",
            "secrets": ["PYTHONPATH", "OTHER"],
            "files": ["tasks.yaml"],
            "eval": {"models": endpoint, "tasks": "tasks.yaml"},
        }
    )
    (lease,) = stage.place(stage.submit(alice, spec, secrets={"PYTHONPATH": "sk-of-alice", "OTHER": "unread"}))
    signed = assignments.make_assignment(lease)
    assignment = verify_assignment(signing.server_public_key_hex(), signed)
    assert assignment.secrets == {"ENDPOINT_KEY_PYTHONPATH": "sk-of-alice"}
    assert assignment.env == {}
    assert "sk-of-alice" not in json.dumps(assignment.program.config)


def test_a_checkpoint_path_is_in_the_assignment_and_absent_where_none_is_named(alice, bob):
    """An agent from before the field refuses an assignment that has it."""
    named, without = ({"every": "2m", **extra} for extra in ({"path": "results"}, {}))
    half = {"resources": {"gpus": 1, "kind": "any"}, **stage.OWN_COMMAND}
    with pytest.raises(AssertionError, match="whose agent is too old for checkpoint_path"):
        stage.quote(alice, stage.spec_of(checkpoint=named, **half))
    bob.facts |= {"runtime_features": list(RUNTIME_FEATURES)}
    bob.save(update_fields=["facts"])
    found = []
    for checkpoint in (named, without):
        (lease,) = stage.place(stage.submit(alice, stage.spec_of(checkpoint=checkpoint, **half)))
        signed = assignments.make_assignment(lease)
        policy = verify_assignment(signing.server_public_key_hex(), signed).checkpoint
        found.append((policy.path, policy.every_seconds, '"path"' in signed.payload))
    assert found == [("results", 120, True), (None, 120, False)]


def test_an_automatic_interval_comes_with_how_often_the_nodes_fail(alice, bob):
    bob.facts |= {"runtime_features": list(RUNTIME_FEATURES)}
    bob.failures = 3
    bob.save(update_fields=["facts", "failures"])
    half = {"resources": {"gpus": 1, "kind": "any"}}
    found = []
    for every in ("auto", "2m"):
        (lease,) = stage.place(stage.submit(alice, stage.spec_of(checkpoint={"every": every}, **half)))
        signed = assignments.make_assignment(lease)
        policy = verify_assignment(signing.server_public_key_hex(), signed).checkpoint
        found.append((policy.every_seconds, policy.mean_seconds_to_failure, "mean_seconds" in signed.payload))
    assert found == [(300, 24 * 3600 / 4, True), (120, 0, False)]
    Lease.objects.update(billable_ms=1000 * 24 * 3600)  # of two leases: two days
    assert mean_seconds_to_failure(lease.attempt) == 3 * 24 * 3600 / 4
    Lease.objects.update(billable_ms=0)
    Node.objects.update(failures=10_000)
    assert mean_seconds_to_failure(lease.attempt) == MEAN_SECONDS_MIN


def test_an_assignment_that_cannot_be_made_stops_no_other_lease_of_its_node(alice, bob):
    half = stage.spec_of(resources={"gpus": 1, "kind": "any"})
    broken, sound = stage.submit(alice, half), stage.submit(alice, half)
    stage.place(broken)
    (other,) = stage.place(sound)
    Job.objects.filter(pk=broken.pk).update(sealed_secrets="of another key")
    _version, (wanted,), forget = assignments.desired_state(bob, [])
    assert (wanted.lease_id, wanted.action, forget) == (other.id, "run", [])


def test_the_desired_state_is_the_same_however_often_it_is_asked(alice, bob):
    stage.place(stage.submit(alice))
    first, second = (assignments.desired_state(bob, []) for _ in range(2))
    assert first[0] == second[0]


def test_secrets_are_erased_when_the_job_ends(alice, bob):
    job = stage.submit(alice, stage.spec_of(secrets=["TOKEN"]), secrets={"TOKEN": "s3cret"})
    lifecycle.cancel(job.id, actor="alice")
    job.refresh_from_db()
    assert job.sealed_secrets == ""


def test_secrets_beyond_their_limit_are_refused_and_nothing_is_submitted(alice, bob):
    with pytest.raises(BadRequest):
        stage.submit(alice, stage.spec_of(secrets=["TOKEN"]), secrets={"TOKEN": "x" * 100_000})
    assert not Job.objects.exists()


def test_the_customers_own_failure_is_billed_and_not_tried_again(alice, bob):
    job, (lease,) = stage.running_job(alice, **stage.OWN_COMMAND)
    stage.see_running(lease, seconds=36)
    stage.bill(lease, ms=36_000)
    stage.finish(lease, Reason.EXIT_NONZERO, exit_code=3, message="exit 3")
    job.refresh_from_db()
    assert (job.state, job.reason, job.message) == ("failed", "exit_nonzero", "exit 3")
    assert stage.earned(bob) == 18_000


def test_a_failure_that_the_job_file_names_is_tried_again(alice, bob):
    job, (lease,) = stage.running_job(alice, retry={"max_attempts": 3, "on": ["exit_nonzero"]})
    stage.finish(lease, Reason.EXIT_NONZERO)
    job.refresh_from_db()
    assert job.state == "recovering"


@pytest.mark.parametrize("until", ["queued", "placed", "running", "recovering"])
def test_cancel_works_in_every_state(alice, bob, until):
    job = stage.submit(alice)
    if until != "queued":
        (lease,) = stage.place(job)
        if until in {"running", "recovering"}:
            stage.send_report(lease, AttemptState.RUNNING)
        if until == "recovering":
            reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    lifecycle.cancel(job.id, actor="alice")
    if until in {"placed", "running"}:
        lease.refresh_from_db()
        assert lease.stop_reason == Reason.CANCELLED_BY_CUSTOMER
        stage.finish(lease, Reason.CANCELLED_BY_CUSTOMER)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("cancelled", "cancelled_by_customer")
    assert balance(alice.id, AccountKind.CUSTOMER_AVAILABLE) == 5 * DOLLAR
    lifecycle.cancel(job.id, actor="alice")  # twice is harmless


def test_a_completed_job_cannot_be_cancelled(alice, bob):
    job, (lease,) = stage.running_job(alice)
    stage.finish(lease)
    with pytest.raises(JobEnded):
        lifecycle.cancel(job.id, actor="alice")


def test_a_cancelled_job_whose_node_falls_silent_is_still_cancelled(alice, bob):
    job, (lease,) = stage.running_job(alice)
    lifecycle.cancel(job.id, actor="alice")
    reports.lose(lease.id, Reason.NODE_SILENT, "gone")
    job.refresh_from_db()
    assert job.state == "cancelled"
