"""What a training prepared is kept for later attempts of its job, and given to nodes of the provider that made it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest
from django.db.models import F

from jobs.artifacts import downloads, prepared, prune, quotas, retention, uploads
from jobs.artifacts.store import prefix_for
from jobs.errors import BadManifest, JobsError
from jobs.models import Artifact, Attempt, Job, Lease, StorageQuota
from jobs.running import reports
from jobs.running.assignments import make_assignment
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.client import Client
from provider_agent.errors import Refused
from provider_agent.protocol import (
    CACHE_FEATURE,
    PREPARED_BYTES_MAX,
    PREPARED_FEATURE,
    ArtifactBegin,
    ArtifactDownloads,
    ArtifactFile,
    ArtifactUploads,
    Assignment,
    AttemptState,
    Reason,
)
from tests import stage
from tests.integration.jobs.checkpointing import run_next
from tests.integration.jobs.checkpointing import save as save_checkpoint
from tests.integration.jobs.conftest import node_with_key, transport_key

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.agent_urls")]

KEY, OTHER = "1" * 64, "2" * 64
TOKENS = b"tokens" * 100

Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def store(local_store: Any) -> Any:
    return local_store


@pytest.fixture
def bob(transactional_db: None) -> Node:
    return able("bobs-node")


@pytest.fixture
def job(alice: Organisation, bob: Node) -> Job:
    """Alice's training of our own program."""
    return stage.submit(alice, stage.spec_of(retry={"max_attempts": 3}))


@pytest.fixture
def lease(job: Job) -> Lease:
    """Of its first attempt, on Bob's node."""
    return run_next(job)


def able(name: str, *, provider: Organisation | None = None, features: Any = (CACHE_FEATURE, PREPARED_FEATURE)) -> Node:
    """A node whose agent fetches prepared data."""
    node = node_with_key(name, provider=provider)
    node.facts |= {"runtime_features": list(features)}
    node.save(update_fields=["facts"])
    return node


def entry(*, kind: str = "tokens", key: str = KEY, data: bytes = TOKENS, **changes: Any) -> Files:
    """An entry's files by their paths in the artifact, with the manifest that names them."""
    listed = [{"path": "tokens.int32", "size": len(data), "sha256": sha256(data)}]
    manifest = json.dumps({"files": listed, "made_seconds": 90.0, **changes}).encode()
    return {f"{kind}/{key}/tokens.int32": data, f"{kind}/{key}/MANIFEST.json": manifest}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def announce(lease: Lease, files: Files, /, **more: Any) -> ArtifactUploads:
    listed = [ArtifactFile(path=path, size=len(data), sha256=sha256(data)) for path, data in files.items()]
    fields: dict[str, Any] = {"kind": "prepared", "node_rank": lease.node_rank, "files": listed}
    return uploads.begin(lease, ArtifactBegin(**fields | more), fence=lease.fence)


def bring(lease: Lease, files: Files | None = None) -> Artifact:
    """Announce, upload and complete, as an agent does; raises what the server does."""
    lease = Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)
    files = entry() if files is None else files
    answer = announce(lease, files)
    etags = {}
    for file in answer.uploads:
        (part,) = file.parts
        etags[file.path] = [httpx.put(part.url, content=files[file.path]).headers["ETag"]]
    return uploads.complete(lease, answer.artifact_id, etags, fence=lease.fence)


def lose(lease: Lease) -> None:
    """Its node is gone, and is not rented again."""
    reports.lose(lease.pk, Reason.NODE_SILENT, "silent")
    Node.objects.filter(pk=lease.node_id).update(state="offline")


def assigned(lease: Lease) -> Assignment:
    return Assignment.model_validate_json(make_assignment(lease).payload)


def get(live_server: Any, lease: Lease, artifact: Artifact) -> ArtifactDownloads:
    """As the agent of the lease's node asks for it."""

    async def go() -> ArtifactDownloads:
        client = Client(api_url=live_server.url, node_id=lease.node_id, key=transport_key(lease.node.name))
        try:
            return await client.get_artifact(lease.pk, artifact.pk)
        finally:
            await client.close()

    return asyncio.run(go())


def test_a_later_attempt_on_a_node_of_the_same_provider_is_given_it(live_server: Any, job: Job, lease: Lease) -> None:
    assert assigned(lease).prepared_artifact_id is None
    assert "prepared_artifact_id" not in make_assignment(lease).payload
    artifact = bring(lease)
    assert (artifact.state, artifact.kind, artifact.job_id, artifact.step) == ("complete", "prepared", job.pk, None)
    lose(lease)
    able("bobs-other-node", provider=lease.node.provider.organisation)
    second = run_next(job)
    assert second.node_id != lease.node_id
    assert assigned(second).prepared_artifact_id == artifact.pk
    described = get(live_server, second, artifact)
    assert {file.path: httpx.get(file.url).content for file in described.files} == entry()


def test_a_node_of_another_provider_is_never_given_it(live_server: Any, job: Job, lease: Lease) -> None:
    artifact = bring(lease)
    lose(lease)
    able("mallorys-node")
    second = run_next(job)
    assert second.node.name == "mallorys-node"
    assert assigned(second).prepared_artifact_id is None
    with pytest.raises(Refused) as refused:
        get(live_server, second, artifact)
    assert (refused.value.status, refused.value.refusal) == (404, "artifact_not_found")


def test_the_customers_own_nodes_deceive_no_provider(alice: Organisation) -> None:
    """Whose checkpoints would be condemned for having other data than everybody else's."""
    able("alices-node", provider=alice)
    job = stage.submit(alice, stage.spec_of(retry={"max_attempts": 3}))
    first = run_next(job)
    bring(first)
    lose(first)
    able("bobs-node")
    assert assigned(run_next(job)).prepared_artifact_id is None


def test_another_job_of_the_same_customer_is_not_given_it(
    live_server: Any, alice: Organisation, bob: Node, lease: Lease
) -> None:
    artifact = bring(lease)
    able("bobs-other-node", provider=bob.provider.organisation)
    other = run_next(stage.submit(alice))
    assert assigned(other).prepared_artifact_id is None
    with pytest.raises(Refused):
        get(live_server, other, artifact)


@pytest.mark.parametrize("features", [[], [CACHE_FEATURE], {"prepared": 1}])
def test_an_older_agent_is_not_given_it(job: Job, lease: Lease, features: Any) -> None:
    bring(lease)
    lose(lease)
    node = able("bobs-other-node", provider=lease.node.provider.organisation)
    Node.objects.filter(pk=node.pk).update(facts=node.facts | {"runtime_features": features})
    second = run_next(job)
    assert "prepared_artifact_id" not in make_assignment(second).payload, "it refuses what it does not know"


LIES: dict[str, Files] = {
    "no entry": {"tokens.int32": TOKENS},
    "an environment": entry(kind="environment"),
    "no manifest": {f"tokens/{KEY}/tokens.int32": TOKENS},
    "a deeper file": entry() | {f"tokens/{KEY}/more/tokens": b"x"},
    "a name that no node can fetch": entry() | {f"tokens/{KEY}/tokens.partial": b"x"},
    "five entries": {path: data for n in range(5) for path, data in entry(key=f"{n:064x}").items()},
    "a manifest of other files": entry(files=[]),
    "a manifest of another digest": entry(files=[{"path": "tokens.int32", "size": 600, "sha256": "0" * 64}]),
    "files that are no entries": entry(files=[[], {"path": {}}, 3]),
    "a manifest that is no JSON": entry() | {f"tokens/{KEY}/MANIFEST.json": b"[" * 100_000},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_what_no_training_prepares_is_refused(job: Job, lease: Lease, store: Any, lie: Files) -> None:
    with pytest.raises(BadManifest, match="nothing that a training prepares"):
        bring(lease, lie)
    assert not Artifact.objects.complete().exists()
    for artifact in Artifact.objects.all():
        assert (artifact.state, store.sizes(prefix_for(artifact.pk))) == ("abandoned", {})
    assert prepared.find_for(lease) is None


def test_more_than_a_node_fetches_is_refused(lease: Lease) -> None:
    """As much as it fetches is not, whenever it comes: most of it may have been fetched from the attempt before."""

    def of(size: int) -> list[ArtifactFile]:
        return [ArtifactFile(path=f"tokens/{KEY}/MANIFEST.json", size=size, sha256="0" * 64)]

    with pytest.raises(BadManifest, match="no node fetches more"):
        announce(lease, {}, files=of(PREPARED_BYTES_MAX + 1))
    assert not Artifact.objects.exists()
    assert announce(lease, {}, files=of(PREPARED_BYTES_MAX)).uploads


def test_a_step_or_another_rank_is_refused(lease: Lease) -> None:
    with pytest.raises(BadManifest):
        announce(lease, entry(), step=10)
    with pytest.raises(BadManifest):
        announce(lease, entry(), node_rank=1)


def test_a_program_of_the_customers_own_prepares_nothing(own_lease: Lease) -> None:
    with pytest.raises(BadManifest, match="Nothing is prepared"):
        bring(own_lease)


def test_another_rank_of_a_gang_brings_nothing(alice: Organisation) -> None:
    owner = stage.organisation("carol")
    for name in ("one", "two"):
        node_with_key(name, fabric="rack", provider=owner)
    spec = stage.spec_of(resources={"gpus": 2, "nodes": 2, "kind": "any"}, budget={"max_total": "8.00"})
    leader, other = stage.place(stage.submit(alice, spec))
    for lease in (leader, other):
        stage.send_report(lease, AttemptState.RUNNING)
    with pytest.raises(BadManifest, match="rank 0 alone"):
        bring(other)
    assert bring(leader).state == "complete", "it waits for no other node's part"


def test_a_newer_one_takes_the_place_of_the_older(job: Job, lease: Lease, store: Any) -> None:
    first = bring(lease)
    lose(lease)
    able("carols-node")
    second = run_next(job)
    newer = bring(second, entry(key=OTHER))
    first.refresh_from_db()
    assert (first.state, newer.state) == ("deleted", "complete")
    assert store.sizes(prefix_for(first.pk)) == {}
    assert quotas.kept_bytes(job.organisation_id, with_prepared=True) == newer.size_bytes


def test_what_an_attempt_did_not_finish_is_given_up(job: Job, lease: Lease) -> None:
    begun = announce(lease, entry())
    lose(lease)
    assert prune.prune_all() > 0
    assert Artifact.objects.get(pk=begun.artifact_id).state == "abandoned"


def test_bringing_it_again_changes_nothing(lease: Lease) -> None:
    artifact = bring(lease)
    assert announce(Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk), entry()).uploads == []
    assert Artifact.objects.get() == artifact


def next_generation(lease: Lease) -> Lease:
    """The gang goes on with another node; this one stays."""
    Attempt.objects.filter(pk=lease.attempt_id).update(generation=F("generation") + 1)
    return Lease.objects.select_related("attempt__job", "node").get(pk=lease.pk)


def test_a_gang_that_goes_on_sends_nothing_again(lease: Lease) -> None:
    files = entry()
    first = announce(lease, files)
    [manifest] = [each for each in first.uploads if each.path.endswith("MANIFEST.json")]
    assert httpx.put(manifest.parts[0].url, content=files[manifest.path]).is_success
    lease = next_generation(lease)
    second = announce(lease, files)
    assert second.artifact_id == first.artifact_id
    assert [each.path for each in second.uploads] == [f"tokens/{KEY}/tokens.int32"]
    artifact = bring(lease, files)
    assert (artifact.pk, artifact.state) == (first.artifact_id, "complete")
    assert announce(next_generation(lease), files).uploads == []
    assert Artifact.objects.get() == artifact


def test_it_leaves_as_much_for_checkpoints(job: Job, lease: Lease) -> None:
    files = entry()
    size = sum(len(data) for data in files.values())
    quota, _ = StorageQuota.objects.update_or_create(
        organisation=job.organisation, defaults={"bytes_max": 2 * size - 1}
    )
    with pytest.raises(JobsError) as refused:
        bring(lease, files)
    assert refused.value.code == "storage_full"
    assert not Artifact.objects.exists()
    StorageQuota.objects.filter(pk=quota.pk).update(bytes_max=2 * size)
    assert bring(lease, files).state == "complete"
    assert quotas.kept_bytes(job.organisation_id, with_prepared=True) == size


@pytest.mark.parametrize("is_complete", [True, False])
def test_an_output_fits_beside_it(job: Job, lease: Lease, settings: Any, is_complete: bool) -> None:
    files = entry()
    size = sum(len(data) for data in files.values())
    StorageQuota.objects.update_or_create(organisation=job.organisation, defaults={"bytes_max": 2 * size})
    settings.SOUK_STORAGE_FILES_MAX = len(files)
    artifact = bring(lease, files) if is_complete else Artifact.objects.get(pk=announce(lease, files).artifact_id)
    output = [ArtifactFile(path=path, size=size, sha256="0" * 64) for path in ("a", "b")]
    announce(lease, {}, kind="output", files=output)
    artifact.refresh_from_db()
    assert artifact.state == ("complete" if is_complete else "uploading"), "nor does it go for that"
    assert (quotas.kept_bytes(job.organisation_id), quotas.kept_files(job.organisation_id)) == (2 * size, 2)
    with pytest.raises(JobsError, match="larger quota"):
        announce(lease, {}, kind="checkpoint", step=1, files=[ArtifactFile(path="c", size=1, sha256="0" * 64)])


def test_it_counts_for_other_prepared_data(job: Job, lease: Lease) -> None:
    files = entry()
    size = sum(len(data) for data in files.values())
    StorageQuota.objects.update_or_create(organisation=job.organisation, defaults={"bytes_max": 3 * size - 1})
    bring(lease, files)
    able("carols-node")
    other = run_next(stage.submit(job.organisation))
    with pytest.raises(JobsError, match="larger quota"):
        bring(other, files)


def test_it_goes_when_its_job_has_ended_and_not_before(job: Job, lease: Lease, store: Any) -> None:
    artifact = bring(lease)
    stage.see_running(lease, seconds=60)
    checkpoint = save_checkpoint(lease, 10)
    prune.prune_all()
    artifact.refresh_from_db()
    assert artifact.state == "complete"
    stage.finish(lease)
    retention.sweep()
    artifact.refresh_from_db()
    assert artifact.kept_until is None, "nobody is warned of what they never need"
    prune.prune_all()
    artifact.refresh_from_db()
    checkpoint.refresh_from_db()
    assert (artifact.state, checkpoint.state) == ("deleted", "complete")
    assert store.sizes(prefix_for(artifact.pk)) == {}


def test_it_is_no_checkpoint_for_pay_or_a_resume(job: Job, lease: Lease) -> None:
    bring(lease)
    assert not Artifact.objects.resumable(job).exists()
    assert not Artifact.objects.credible().exists()


def test_its_owner_may_download_it(lease: Lease) -> None:
    files = downloads.remote_files(bring(lease))
    assert {file.path: httpx.get(file.url).content for file in files} == entry()
