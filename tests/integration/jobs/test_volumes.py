"""A volume is put once and given to any number of jobs: each keeps the version that it was submitted with."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import lifecycle, tasks
from jobs.artifacts import charges, prune, retention, volumes
from jobs.errors import (
    ArtifactInVolume,
    ArtifactNotFound,
    InputNotReady,
    VolumeEmpty,
    VolumeGone,
    VolumeNotFound,
    VolumesFull,
    VolumeVersionInUse,
    VolumeVersionNotFound,
)
from jobs.models import Artifact, ArtifactPart, JobInput, StorageCharge, Volume, VolumeVersion
from jobs.quoting import quotes
from jobs.results import find_version, name_inputs
from jobs.running.assignments import make_assignment
from marketplace.foundation import clock
from provider_agent.protocol import Assignment
from tests import stage
from tests.row_states import create_in_state

pytestmark = pytest.mark.django_db(transaction=True)

GIB = 1024**3


def upload(owner, *, state="complete", size_bytes=100, files=1, **more):
    """A complete input of theirs, unless `state` is another."""
    artifact = create_in_state(
        Artifact,
        state,
        organisation=owner,
        kind=more.pop("kind", "input"),
        size_bytes=size_bytes,
        completed_at=clock.now(),
        **more,
    )
    listed = [{"path": f"{number}.jsonl", "size": 1, "sha256": "0" * 64} for number in range(files)]
    ArtifactPart.objects.create(artifact=artifact, files=listed, file_count=files, is_complete=True)
    return artifact


def put(owner, name="corpus", **more):
    """A new version from a new upload; its artifact."""
    artifact = upload(owner, **more)
    volumes.put_upload(owner, name, artifact.pk, source="data")
    return artifact


def spec_with(name="corpus", **more):
    return stage.spec_of(name="second", inputs={"corpus": {"volume": name, **more}})


def later(days):
    return VolumeVersion.objects.filter(superseded_at__isnull=False).update(
        superseded_at=clock.now() - timedelta(days=days)
    )


def numbers(name="corpus"):
    return list(VolumeVersion.objects.filter(volume__name=name).order_by("number").values_list("number", flat=True))


@pytest.fixture
def node():
    node = stage.node("bobs")
    node.facts |= {"runtime_features": ["inputs"]}
    node.save(update_fields=["facts"])
    return node


def test_the_node_is_sent_the_newest_version_of_the_moment_of_submitting(alice, node):
    put(alice)
    newest = put(alice)
    job = stage.submit(alice, spec_with())
    put(alice)
    (lease,) = stage.place(job)
    assert Assignment.model_validate_json(make_assignment(lease).payload).inputs == {"corpus": newest.pk}


def test_a_job_file_may_name_an_older_version(alice, node):
    first = put(alice)
    put(alice)
    job = stage.submit(alice, spec_with(version=1))
    assert JobInput.objects.get(job=job).artifact == first
    assert name_inputs(job, spec_with(version=1)) == {"corpus": {"volume": "corpus", "version": 1}}


def test_what_is_not_there_is_named_with_what_is(alice, node):
    put(alice)
    with pytest.raises(VolumeNotFound, match=r"'corpse'.*mean 'corpus'"):
        quotes.make_quote(spec_with("corpse"), alice)
    with pytest.raises(VolumeVersionNotFound, match=r"no version 7; it has 1"):
        quotes.make_quote(spec_with(version=7), alice)


def test_another_organisations_volume_is_not_found(alice, node):
    mallory = stage.organisation("mallory", usd_micros=10 * stage.DOLLAR)
    theirs = put(alice)
    with pytest.raises(VolumeNotFound) as refused:
        quotes.make_quote(spec_with(), mallory)
    assert "mean" not in str(refused.value), "not even the name of somebody else's"
    with pytest.raises(VolumeNotFound):
        volumes.delete(mallory, "corpus")
    with pytest.raises(ArtifactNotFound):
        volumes.put_upload(mallory, "mine", theirs.pk)
    put(mallory)
    assert Volume.objects.filter(name="corpus").count() == 2
    assert find_version(alice, "corpus").artifact == theirs


def test_a_volume_deleted_between_quote_and_submit_is_refused(alice, node):
    put(alice)
    quote_id = stage.quote(alice, spec_with())
    volumes.delete(alice, "corpus")
    with pytest.raises(VolumeNotFound):
        lifecycle.submit(organisation=alice, user=alice.members.first(), spec=spec_with(), quote_id=quote_id)
    assert not JobInput.objects.exists()


def test_only_a_whole_upload_with_files_becomes_a_version(alice):
    with pytest.raises(InputNotReady):
        volumes.put_upload(alice, "corpus", upload(alice, state="uploading").pk)
    empty = upload(alice, files=0)
    with pytest.raises(VolumeEmpty, match=f"The upload {empty.pk} has no file"):
        volumes.put(alice, "corpus", empty)
    with pytest.raises(ArtifactNotFound):
        volumes.put_upload(alice, "corpus", upload(alice, kind="checkpoint").pk)
    assert not Volume.objects.exists()


def test_putting_the_newest_version_again_makes_no_other(alice):
    artifact = put(alice)
    assert volumes.put_upload(alice, "corpus", artifact.pk).number == 1
    assert numbers() == [1]


def test_a_superseded_version_goes_when_no_job_has_needed_it_for_a_while(alice, node):
    first = put(alice)
    job = stage.submit(alice, spec_with())
    second = put(alice)
    later(days=8)
    tasks.prune_artifacts()
    assert numbers() == [1, 2], "a job needs the first"
    lifecycle.cancel(job.pk, actor="alice")
    tasks.prune_artifacts()
    assert numbers() == [1, 2], "it ended just now"
    type(job).objects.filter(pk=job.pk).update(ended_at=clock.now() - timedelta(days=8))
    tasks.prune_artifacts()
    first.refresh_from_db()
    second.refresh_from_db()
    assert (numbers(), first.state, second.state) == ([2], "deleted", "complete")


def test_the_newest_version_stays_until_it_is_deleted(alice):
    artifact = put(alice)
    Artifact.objects.filter(pk=artifact.pk).update(completed_at=clock.now() - timedelta(days=3650))
    tasks.prune_artifacts()
    artifact.refresh_from_db()
    assert artifact.state == "complete"
    with pytest.raises(ArtifactInVolume, match="version 1"):
        prune.delete_for(alice, artifact.pk, actor="alice")
    volumes.delete(alice, "corpus")
    artifact.refresh_from_db()
    assert (artifact.state, Volume.objects.count()) == ("deleted", 0)


def test_the_bytes_of_a_deleted_volume_are_left_to_the_sweep(alice, monkeypatch):
    asked: list[object] = []
    monkeypatch.setattr(prune, "_delete_bytes", asked.append)
    first, second = put(alice), put(alice)
    volumes.delete(alice, "corpus")
    for artifact in (first, second):
        artifact.refresh_from_db()
    assert (first.state, second.state, asked) == ("deleted", "deleted", [])
    prune.prune_all()
    assert set(asked) == {first.pk, second.pk}


def test_a_version_alone_is_deleted_only_where_it_is_superseded(alice):
    first, second = put(alice), put(alice)
    with pytest.raises(VolumeVersionInUse):
        volumes.delete(alice, "corpus", 2)
    with pytest.raises(VolumeVersionNotFound):
        volumes.delete(alice, "corpus", 3)
    volumes.delete(alice, "corpus", 1)
    for artifact in (first, second):
        artifact.refresh_from_db()
    assert (numbers(), first.state, second.state) == ([2], "deleted", "complete")


def test_what_a_job_was_given_outlives_the_deleted_volume(alice, node):
    artifact = put(alice)
    job = stage.submit(alice, spec_with())
    volumes.delete(alice, "corpus")
    artifact.refresh_from_db()
    assert (artifact.state, JobInput.objects.get(job=job).artifact) == ("complete", artifact)
    with pytest.raises(VolumeVersionNotFound, match="was deleted"):
        name_inputs(job, spec_with())


def test_a_result_that_became_a_volume_is_kept_and_then_dated_again(alice, node):
    job, leases = stage.running_job(alice, name="first")
    result = upload(alice, kind="output", job=job, attempt=leases[0].attempt)
    for lease in leases:
        stage.finish(lease)
    retention.sweep()
    result.refresh_from_db()
    assert result.kept_until is not None
    volumes.put(alice, "corpus", result)
    retention.sweep()
    result.refresh_from_db()
    assert result.kept_until is None
    volumes.delete(alice, "corpus")
    retention.sweep()
    result.refresh_from_db()
    assert (result.state, result.kept_until is not None) == ("complete", True)


def test_volumes_and_their_versions_are_bounded(alice, monkeypatch):
    monkeypatch.setattr(volumes, "VERSIONS_MAX", 2)
    monkeypatch.setattr(volumes, "VOLUMES_MAX", 2)
    put(alice)
    put(alice)
    with pytest.raises(VolumesFull, match="souk volumes delete NAME --version N"):
        put(alice)
    put(alice, "other")
    with pytest.raises(VolumesFull):
        put(alice, "third")


def test_a_volume_that_nobody_pays_for_goes_with_a_mail(alice, settings, mailoutbox):
    settings.SOUK_STORAGE_USD_MICROS_PER_GIB_MONTH = 30 * stage.DOLLAR
    settings.SOUK_STORAGE_GIB_FREE = 1
    poor = stage.organisation("poor")
    artifact = put(poor, size_bytes=3 * GIB)
    charges.charge_due()
    assert StorageCharge.objects.get().is_paid is False
    retention.sweep()
    artifact.refresh_from_db()
    assert artifact.unpaid_until is not None, "a volume does not stop this clock"
    Artifact.objects.filter(pk=artifact.pk).update(unpaid_until=clock.now() - timedelta(seconds=1))
    retention.sweep()
    artifact.refresh_from_db()
    assert artifact.state == "deleted"
    with pytest.raises(VolumeGone, match="nobody paid"):
        find_version(poor, "corpus")
    again = put(poor)
    assert find_version(poor, "corpus").artifact == again
