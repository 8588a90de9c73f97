"""What an earlier job left is a folder of a later one's inputs: its owner's alone, and kept while it is needed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import lifecycle
from jobs.artifacts import prune, retention
from jobs.errors import ArtifactInUse, InputMixed, ResultNotReady
from jobs.models import Artifact, ArtifactKind, ArtifactPart, JobInput
from jobs.quoting import quotes
from jobs.running.assignments import make_assignment
from marketplace.foundation import clock
from provider_agent.protocol import Assignment
from tests import stage
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)


def ended_training(owner, name="first"):
    """A training of theirs that left a result."""
    job, leases = stage.running_job(owner, name=name)
    artifact = create_in_state(
        Artifact,
        "complete",
        organisation=owner,
        job=job,
        attempt=leases[0].attempt,
        kind="output",
        completed_at=clock.now(),
    )
    for lease in leases:
        stage.finish(lease)
    job.refresh_from_db()
    assert job.state == "completed"
    return job, artifact


@pytest.fixture
def node():
    node = stage.node("bobs")
    node.facts |= {"runtime_features": ["inputs"]}
    node.save(update_fields=["facts"])
    return node


def spec_with(given):
    return stage.spec_of(name="second", inputs={"tuned": {"job": given}})


@pytest.mark.parametrize("by", ["id", "name"])
def test_the_node_is_told_which_result_belongs_in_which_folder(alice, node, by):
    first, artifact = ended_training(alice)
    job = stage.submit(alice, spec_with(str(first.pk) if by == "id" else first.name))
    (lease,) = stage.place(job)
    told = Assignment.model_validate_json(make_assignment(lease).payload)
    assert told.inputs == {"tuned": artifact.pk}


def test_by_a_name_it_is_the_one_that_completed_last(alice, node):
    ended_training(alice)
    _, newer = ended_training(alice)
    job = stage.submit(alice, spec_with("first"))
    assert JobInput.objects.get(job=job).artifact == newer


def test_nobody_is_given_what_another_organisation_left(alice, node):
    mallory = stage.organisation("mallory", usd_micros=10 * stage.DOLLAR)
    theirs, _ = ended_training(mallory)
    for given in (str(theirs.pk), theirs.name):
        with pytest.raises(ResultNotReady, match="no job"):
            quotes.make_quote(spec_with(given), alice)


def test_a_result_that_went_between_quote_and_submit_is_refused(alice, node):
    first, artifact = ended_training(alice)
    spec = spec_with(str(first.pk))
    quote_id = stage.quote(alice, spec)
    prune.delete_for(alice, artifact.pk, actor="alice")
    with pytest.raises(ResultNotReady):
        lifecycle.submit(organisation=alice, user=alice.members.first(), spec=spec, quote_id=quote_id)
    assert not JobInput.objects.exists()


def test_it_is_kept_until_the_job_has_ended(alice, node):
    first, artifact = ended_training(alice)
    job = stage.submit(alice, spec_with(str(first.pk)))
    later = clock.now() + timedelta(days=3650)
    assert not prune.unneeded(later).filter(pk=artifact.pk).exists()
    with pytest.raises(ArtifactInUse):
        prune.delete_for(alice, artifact.pk, actor="alice")
    Artifact.objects.filter(pk=artifact.pk).update(kept_until=clock.now())
    retention.sweep()
    artifact.refresh_from_db()
    assert (artifact.state, artifact.kept_until) == ("complete", None)
    lifecycle.cancel(job.pk, actor="alice")
    assert prune.unneeded(later).filter(pk=artifact.pk).exists()


@pytest.mark.parametrize("path", ["tuned/model/config.json", "tuned"])
def test_files_of_its_own_lie_in_no_folder_of_a_result(alice, node, path):
    first, _ = ended_training(alice)
    own = create_in_state(Artifact, "complete", organisation=alice, kind="input", completed_at=clock.now())
    ArtifactPart.objects.create(artifact=own, files=[{"path": path, "size": 1, "sha256": "0" * 64}])
    spec = stage.spec_of(name="second", files=["."], inputs={"tuned": {"job": str(first.pk)}})
    with pytest.raises(InputMixed, match="tuned/ is kept for what an earlier job left"):
        stage.submit(alice, spec, input_artifact=own)


def test_an_agent_of_before_is_passed_over(alice):
    stage.node("old")
    first, artifact = ended_training(alice)
    assert artifact.kind == ArtifactKind.OUTPUT
    view = quotes.make_quote(spec_with(str(first.pk)), alice)
    assert view.quote_id is None
    assert any("inputs" in each.message for each in view.plan.exclusions)
