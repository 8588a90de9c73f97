"""Nobody announces more than may be kept: a quota by organisation, reserved at announcement and freed when given up."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from jobs.artifacts import inputs, prune, quotas, uploads
from jobs.errors import JobsError
from jobs.models import Artifact, Job, Lease, StorageQuota
from jobs.states import ArtifactState
from marketplace.accounts.models import Organisation
from provider_agent.errors import Refused
from provider_agent.lease.endings import name_refusal
from provider_agent.protocol import ArtifactBegin, ArtifactFile, Reason
from tests import stage
from tests.row_states import put_in_state

pytestmark = pytest.mark.django_db(transaction=True)

KIB = 1024


@pytest.fixture(autouse=True)
def small(local_store: Any, settings: Any) -> None:
    settings.SOUK_STORAGE_GIB_MAX = 10 * KIB / quotas.GIB


def files(size: int, *, path: str = "a") -> list[ArtifactFile]:
    return [ArtifactFile(path=path, size=size, sha256="0" * 64)]


def announce(lease: Lease, size: int, step: int = 1) -> Any:
    begin = ArtifactBegin(files=files(size), kind="checkpoint", step=step, node_rank=0)
    return uploads.begin(lease, begin, fence=lease.fence)


def test_two_terabytes_are_not_announced_for_nothing(alice: Organisation) -> None:
    with pytest.raises(JobsError, match="larger quota") as caught:
        inputs.announce_input(alice, [each for n in range(32) for each in files(64 * quotas.GIB, path=f"part-{n}")])
    assert (caught.value.code, caught.value.status) == ("storage_full", 422)
    assert not Artifact.objects.exists()


def test_announced_bytes_count_until_the_upload_is_given_up(alice: Organisation) -> None:
    first = inputs.announce_input(alice, files(6 * KIB))
    with pytest.raises(JobsError):
        inputs.announce_input(alice, files(6 * KIB))
    Artifact.objects.filter(pk=first.pk).update(created_at=timezone.now() - timedelta(days=2))
    assert prune.prune_all() > 0
    assert quotas.kept_bytes(alice.pk) == 0
    assert inputs.announce_input(alice, files(6 * KIB))


def test_a_quota_is_one_organisations_and_an_operator_may_set_it(alice: Organisation) -> None:
    inputs.announce_input(alice, files(10 * KIB))
    inputs.announce_input(stage.organisation("carol"), files(10 * KIB))
    StorageQuota.objects.create(organisation=alice, bytes_max=12 * KIB)
    inputs.announce_input(alice, files(2 * KIB))
    with pytest.raises(JobsError):
        inputs.announce_input(alice, files(1))


def test_empty_files_are_no_way_around_the_quota(alice: Organisation, lease: Lease, settings: Any) -> None:
    settings.SOUK_STORAGE_FILES_MAX = 3
    first = inputs.announce_input(alice, [*files(0), *files(0, path="b")])
    with pytest.raises(JobsError, match="2 of the 3 files") as caught:
        inputs.announce_input(alice, [*files(0), *files(0, path="b")])
    assert (caught.value.code, caught.value.status) == ("storage_full", 422)
    announce(lease, 1)
    with pytest.raises(JobsError, match="3 of the 3 files"):
        announce(lease, 1, step=2)
    announce(lease, 1)  # again is nothing new
    prune.abandon(first, reason="not_needed")
    assert quotas.kept_files(alice.pk) == 1
    announce(lease, 1, step=2)


def test_two_announcements_at_once_do_not_share_the_last_bytes(alice: Organisation) -> None:
    start, refused = threading.Barrier(2), []

    def announce_one() -> None:
        start.wait()
        try:
            inputs.announce_input(alice, files(6 * KIB))
        except JobsError as error:
            refused.append(error.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=announce_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (refused, quotas.kept_bytes(alice.pk)) == (["storage_full"], 6 * KIB)


def test_checkpoints_of_a_node_count_once_and_are_refused_beyond(alice: Organisation, bob: Any) -> None:
    _, (lease,) = stage.running_job(alice, **stage.OWN_COMMAND)
    announce(lease, 6 * KIB)
    announce(lease, 6 * KIB)
    assert quotas.kept_bytes(alice.pk) == 6 * KIB
    with pytest.raises(JobsError, match="larger quota"):
        announce(lease, 6 * KIB, step=2)
    assert Artifact.objects.get().step == 1


def test_an_output_that_the_quota_refuses_is_no_fault_of_the_node() -> None:
    refused = Refused(422, "storage_full", "These files have too many bytes.", {})
    assert name_refusal(refused, 0).reason is Reason.EXIT_NONZERO


def test_inputs_go_when_their_last_job_has_long_ended(alice: Organisation, bob: Any) -> None:
    month_ago = timezone.now() - timedelta(days=31)
    used, unused, running = (inputs.announce_input(alice, files(KIB)) for _ in range(3))
    for artifact in (used, unused, running):
        put_in_state(Artifact.objects.filter(pk=artifact.pk), ArtifactState.COMPLETE)
        artifact.refresh_from_db()
    Artifact.objects.update(completed_at=month_ago)
    job, other = stage.submit(alice, input_artifact=used), stage.submit(alice, input_artifact=running)
    put_in_state(Job.objects.filter(pk=job.pk), "cancelled")
    Job.objects.filter(pk=job.pk).update(ended_at=timezone.now() - timedelta(days=29))
    prune.prune_all()
    assert stage.states_of([used, unused, running]) == ["complete", "deleted", "complete"]
    Job.objects.filter(pk=job.pk).update(ended_at=month_ago)
    prune.prune_all()
    assert stage.states_of([used, running, other]) == ["deleted", "complete", "queued"]
    assert quotas.kept_bytes(alice.pk) == KIB
