"""A kind of job is its modules and its rows in the tables: one more goes all the way, and an unknown one nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import CheckConstraint

from jobs import lifecycle, sweeps
from jobs.bills.bill import make_bill
from jobs.client.verify.bill import verify_bill
from jobs.errors import UnknownKind
from jobs.kinds.registry import KINDS, kind_named
from jobs.models import Artifact, Job, Lease, Stream
from jobs.placing import placement
from jobs.quoting import quotes
from jobs.running.streams import read_stream
from jobs.spec import SpecErrors, canonical, from_wire, parse
from jobs.spec import UnknownKind as UnknownSpecKind
from jobs.spec import kind_named as spec_kind_named
from jobs.spec.kinds.registry import KINDS as SPEC_KINDS
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from marketplace.nodes.watching import liveness
from provider_agent.protocol import AttemptState, Reason
from tests import stage
from tests.integration.jobs.kinds.conftest import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).parents[4]
PARROT = """
kind: parrot
name: hello
resources: {kind: cpu, isolation: none}
budget: {max_total: 1.00}
parrot: {text: Hello!, times: 4}
"""
COMMAND = {
    "kind": "command",
    "name": "own",
    "resources": {"gpus": 2, "kind": "any"},
    "budget": {"max_total": "2.00"},
    "command": "python train.py",
}


@pytest.mark.usefixtures("parrot")
def test_a_kind_of_one_file_is_quoted_placed_run_and_billed(alice: Organisation, bobs_node: Node) -> None:
    spec = parse(PARROT)
    view = quotes.make_quote(spec, alice)
    assert view.quote_id is not None and view.expected_seconds is not None, view.plan
    job = lifecycle.submit(organisation=alice, user=alice.members.first(), spec=spec, quote_id=view.quote_id)
    assert placement.place_batch() == 1

    def is_over() -> bool:
        liveness.flush_beats()
        sweeps.sweep_jobs()
        job.refresh_from_db()
        return job.state not in {"queued", "placed", "running"}

    eventually(is_over)
    assert (job.kind, job.state) == ("parrot", "completed"), job.message
    assert read_stream(job, Stream.LOG).text.startswith("0 Hello!\n1 Hello!\n")
    assert Artifact.objects.get(job=job, kind="output").state == "complete"
    bill = make_bill(job)
    lease = Lease.objects.get(attempt__job=job)
    assert bill.is_final and bill.total_usd_micros == lease.charge_usd_micros > 0
    assert bill.released_usd_micros == 1_000_000 - bill.total_usd_micros
    assert verify_bill(bill).problem is None


@pytest.mark.usefixtures("parrot")
def test_a_new_kinds_section_and_rules_are_those_of_its_file() -> None:
    spec = parse(PARROT)
    assert from_wire(canonical(spec)) == spec and canonical(spec)["parrot"] == {"text": "Hello!", "times": 4}
    with pytest.raises(SpecErrors) as refused:
        parse(PARROT.replace("times: 4", "tmies: 4") + "train: {}\nwork: {steps: 1}\n")
    messages = [str(error) for error in refused.value.errors]
    assert messages == [
        "line 6: parrot.tmies: unknown field; did you mean times? (expected one of text, times)",
        "line 7: train: is for kind: train (expected kind: train, or no such section)",
        "line 8: work: means nothing for kind: parrot (expected no such field)",
    ]


def test_nothing_but_its_own_file_names_the_new_kind() -> None:
    sources = [path for part in ("jobs", "provider_agent", "marketplace") for path in (ROOT / part).rglob("*.py")]
    assert [str(path) for path in sources if re.search(r"[\"']parrot[\"']", path.read_text())] == []


def test_no_module_outside_the_kinds_asks_for_one_by_name() -> None:
    asks = re.compile(r"\bkind\s*(==|!=|in)\s*[(\[{]?\s*[\"'](train|serve|command|eval)[\"']")
    asks_rows = re.compile(r"\(kind(__in)?=\[?[\"'](train|serve|command|eval)[\"']")
    outside = [path for path in (ROOT / "jobs").rglob("*.py") if not {"kinds", "migrations"} & {*path.parts}]
    found = [path.name for path in outside if asks.search(text := path.read_text()) or asks_rows.search(text)]
    assert found == []


def test_both_tables_and_the_database_know_the_same_kinds() -> None:
    (constraint,) = (each for each in Job._meta.constraints if each.name == "job_kind_known")
    assert isinstance(constraint, CheckConstraint)
    assert list(KINDS) == list(SPEC_KINDS) == dict(constraint.condition.children)["kind__in"]
    assert all(kind.name == name and kind.spec_kind.name == name for name, kind in KINDS.items())


@pytest.mark.usefixtures("bob")
def test_a_command_is_a_kind_that_runs_to_its_end(alice: Organisation) -> None:
    job = stage.submit(alice, from_wire(COMMAND))
    (lease,) = stage.place(job)
    program = kind_named(job.kind).execution(lease.attempt).program
    assert (program.runtime, program.command, program.config) == (None, ["bash", "-c", "python train.py"], {})
    stage.send_report(lease, AttemptState.RUNNING)
    stage.finish(lease)
    job.refresh_from_db()
    assert (job.kind, job.state) == ("command", "completed")


@pytest.mark.usefixtures("bob")
def test_a_training_by_a_command_goes_on_as_before(alice: Organisation) -> None:
    job = stage.submit(alice, from_wire(COMMAND | {"kind": "train"}))
    (lease,) = stage.place(job)
    program = kind_named("train").execution(lease.attempt).program
    assert (job.kind, program.runtime, program.config) == ("train", None, {})
    assert program.command == ["bash", "-c", "python train.py"]


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"command": None}, "nothing to do: no command is given (expected command: a text or a list of words)"),
        ({"train": {}}, "train: is for kind: train (expected kind: train, or no such section)"),
        ({"work": {"tokens": 5}}, "work.tokens: means nothing for an own command (expected steps, with"),
        (
            {"kind": "commadn"},
            "kind: 'commadn' is not a kind; did you mean command? (expected train, serve, command or eval",
        ),
        ({"kind": "swarm", "swarm": {}}, "kind: 'swarm' is not a kind (expected train, serve, command or eval"),
    ],
)
def test_a_wrong_command_or_kind_is_refused_with_what_there_is(changes: dict[str, Any], mistake: str) -> None:
    with pytest.raises(SpecErrors) as refused:
        from_wire(COMMAND | changes)
    assert any(str(error).startswith(mistake) for error in refused.value.errors), refused.value


@pytest.mark.usefixtures("bob")
def test_a_row_of_an_unknown_kind_is_refused_and_never_treated_as_a_training(alice: Organisation) -> None:
    job = stage.submit(alice)
    with pytest.raises(IntegrityError, match="job_kind_known"), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(kind="swarm")
    with pytest.raises(UnknownKind, match="knows train, serve, command, eval"):
        kind_named("swarm")
    with pytest.raises(UnknownSpecKind, match="expected train, serve, command or eval"):
        spec_kind_named("swarm")
    (lease,) = stage.place(job)
    stage.send_report(lease, AttemptState.RUNNING)
    with pytest.raises(UnknownKind), transaction.atomic():
        locked = lifecycle.lock(job.pk)
        locked.kind = "swarm"
        lifecycle.finish_attempt(locked, lease.attempt, Reason.COMPLETED)
    spec = from_wire(stage.TRAIN).model_copy(update={"kind": "swarm"})
    with pytest.raises(UnknownKind):
        quotes.make_quote(spec, alice)
    assert Job.objects.get(pk=job.pk).state == "running"


@pytest.mark.usefixtures("parrot", "bob")
def test_a_job_whose_kind_this_server_does_not_know_is_not_placed(
    alice: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = {"kind": "parrot", "name": "e", "resources": {"kind": "any"}, "budget": {"max_total": "1"}}
    job = stage.submit(alice, from_wire(wire | {"parrot": {"text": "hi"}}))
    monkeypatch.delitem(SPEC_KINDS, "parrot")
    monkeypatch.delitem(KINDS, "parrot")
    assert list(Job.objects.placeable()) == [] and placement.place_batch() == 0
    job.refresh_from_db()
    assert job.state == "queued"
