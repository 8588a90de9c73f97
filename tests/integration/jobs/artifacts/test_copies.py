"""What is kept has a second copy in another store, of which it is read and repaired where the first has lost it."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from django.core.management import call_command

from billing.models.alerts import Alert
from jobs import tasks
from jobs.artifacts import choice as stores
from jobs.artifacts import copies, copying, downloads, fallback, inputs, prune
from jobs.artifacts.s3 import make_client
from jobs.artifacts.store import Store, key_for, prefix_for
from jobs.client.download import download_artifact
from jobs.client.sdk import Souk
from jobs.models import Artifact, ArtifactCopy
from marketplace.accounts import api_keys
from marketplace.accounts.scopes import Scope
from marketplace.config import metrics
from marketplace.foundation import clock
from provider_agent.protocol import ArtifactFile
from tests import stage
from tests.contracts.artifact_stores.conftest import PART_BYTES, s3_endpoint  # noqa: F401 - a fixture

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("marketplace.config.urls")]

SECONDS_MAX = 60.0
FILES = {"weights.bin": os.urandom(PART_BYTES + 70_000), "empty": b"", "a.json": b"{}"}


@pytest.fixture(params=["local-local", "local-s3", "s3-local", "s3-s3"])
def pair(request, settings, tmp_path, live_server, s3_endpoint) -> Iterator[tuple[Store, Store]]:  # noqa: F811
    """Both stores, each of either kind: folders, and buckets of a real S3 server."""
    first, second = request.param.split("-")
    settings.SOUK_DATA, settings.SOUK_API_URL = tmp_path / "data", live_server.url
    settings.SOUK_ARTIFACT_STORE, settings.SOUK_ARTIFACT_SECOND_STORE = first, second
    settings.SOUK_S3_ENDPOINT = settings.SOUK_ARTIFACT_SECOND_S3_ENDPOINT = s3_endpoint
    settings.SOUK_S3_BUCKET, settings.SOUK_ARTIFACT_SECOND_S3_BUCKET = "souk", "elsewhere"
    for prefix in ("SOUK_S3", "SOUK_ARTIFACT_SECOND_S3"):
        setattr(settings, f"{prefix}_ACCESS_KEY", "alice")
        setattr(settings, f"{prefix}_SECRET_KEY", "not-a-secret")
    (tmp_path / "other disk").mkdir()
    if second == "local":
        settings.SOUK_ARTIFACT_SECOND_FOLDER = str(tmp_path / "other disk")
    httpx.post(f"{s3_endpoint}/moto-api/reset")
    for bucket in ("souk", "elsewhere"):
        make_client(endpoint=s3_endpoint, region="", access_key="a", secret_key="b").create_bucket(Bucket=bucket)
    _forget_stores()
    main, other = stores.get_store(), stores.get_second_store()
    assert other is not None
    main.part_bytes = other.part_bytes = PART_BYTES
    yield main, other
    _forget_stores()


def _forget_stores() -> None:
    stores._store_for.cache_clear()
    stores._second_store_for.cache_clear()


@pytest.fixture
def folders(settings, tmp_path, live_server) -> Iterator[tuple[Store, Store]]:
    """Two folders, which is the quickest pair."""
    settings.SOUK_DATA, settings.SOUK_API_URL = tmp_path / "data", live_server.url
    settings.SOUK_ARTIFACT_SECOND_STORE = "local"
    settings.SOUK_ARTIFACT_SECOND_FOLDER = str(tmp_path / "other disk")
    (tmp_path / "other disk").mkdir()
    _forget_stores()
    second = stores.get_second_store()
    assert second is not None
    yield stores.get_store(), second
    _forget_stores()


def given(organisation, files: dict[str, bytes] = FILES) -> Artifact:
    """A complete input of these files, sent by its addresses."""
    listed = [ArtifactFile(path=p, size=len(d), sha256=hashlib.sha256(d).hexdigest()) for p, d in files.items()]
    artifact = inputs.announce_input(organisation, listed)
    etags = {}
    for upload in inputs.begin_input(organisation, artifact.pk):
        data = files[upload.path]
        pieces = [(each.url, data[each.offset : each.offset + each.size]) for each in upload.parts]
        sent = [httpx.put(url, content=piece, timeout=SECONDS_MAX) for url, piece in pieces]
        etags[upload.path] = [each.headers["ETag"].strip('"') for each in sent]
    return inputs.complete_input(organisation, artifact.pk, etags)


def key_of(artifact: Artifact, path: str = "weights.bin") -> str:
    part = artifact.parts.get()
    return key_for(artifact.pk, 0, [file["path"] for file in part.files].index(path))


def content(store: Store, key: str) -> bytes:
    return b"".join(store.chunks(key))


def damage(store: Store, key: str) -> None:
    """Other bytes of the same length, behind the store's back: as a failing disk gives."""
    if hasattr(store, "open_file"):
        with store.open_file(key) as file:
            path = Path(file.name)
        data = path.read_bytes()
        path.write_bytes(bytes(len(data)))
    else:
        store.write(key, [bytes(len(content(store, key)))])


def fetch(artifact: Artifact, *, is_damaged: bool = False) -> dict[str, bytes]:
    return {
        file.path: httpx.get(file.url, timeout=SECONDS_MAX).content
        for file in downloads.remote_files(artifact, is_damaged=is_damaged)
    }


def test_an_artifact_is_copied_once_and_verified(pair, alice):
    _, second = pair
    artifact = given(alice)
    assert tasks.copy_artifacts() == 1
    assert {key: content(second, key) for key in second.sizes(prefix_for(artifact.pk))} == {
        key_of(artifact, path): data for path, data in FILES.items()
    }
    row = ArtifactCopy.objects.get()
    assert (row.pk, row.tries, row.is_damaged, row.busy_until) == (artifact.pk, 0, False, None)
    assert row.copied_at is not None
    assert tasks.copy_artifacts() == 0
    assert fetch(artifact) == FILES


def test_a_file_that_the_first_store_lost_comes_from_the_second_and_is_repaired(pair, alice):
    first, second = pair
    artifact = given(alice)
    tasks.copy_artifacts()
    first.delete_prefix(prefix_for(artifact.pk))
    assert fetch(artifact) == FILES
    assert ArtifactCopy.objects.get().suspected_at is not None
    assert tasks.copy_artifacts() == 1
    assert content(first, key_of(artifact)) == FILES["weights.bin"]
    row = ArtifactCopy.objects.get()
    assert (row.suspected_at, row.repaired_files) == (None, 3)
    second.delete_prefix(prefix_for(artifact.pk))
    assert fetch(artifact) == FILES, "the first store serves it again"


def test_bytes_that_changed_in_the_first_store_come_from_the_second(pair, alice):
    first, _ = pair
    artifact = given(alice)
    tasks.copy_artifacts()
    damage(first, key_of(artifact))
    assert fetch(artifact)["weights.bin"] != FILES["weights.bin"], "nobody can know before they were read"
    assert fetch(artifact, is_damaged=True) == FILES
    tasks.copy_artifacts()
    assert content(first, key_of(artifact)) == FILES["weights.bin"]
    assert ArtifactCopy.objects.get().repaired_files == 1
    assert fetch(artifact) == FILES


def test_a_customers_download_of_damaged_bytes_ends_with_the_right_ones(pair, alice, tmp_path, live_server):
    first, _ = pair
    artifact = given(alice)
    tasks.copy_artifacts()
    damage(first, key_of(artifact))
    _, key = api_keys.issue(user=alice.members.get(), organisation=alice, name="test", scopes=tuple(Scope))
    with Souk(live_server.url, key) as souk:
        download_artifact(souk, artifact.pk, tmp_path / "here")
    assert {path: (tmp_path / "here" / path).read_bytes() for path in FILES} == FILES


def test_a_copy_that_changed_is_repaired_from_the_first(pair, alice):
    _, second = pair
    artifact = given(alice)
    tasks.copy_artifacts()
    damage(second, key_of(artifact))
    assert copies.suspect(artifact.pk)
    tasks.copy_artifacts()
    assert content(second, key_of(artifact)) == FILES["weights.bin"]


def test_bytes_other_than_announced_are_never_copied_and_cost_nobody_else(pair, alice):
    first, second = pair
    bad, good = given(alice), given(alice, {"b": b"fine"})
    damage(first, key_of(bad))
    assert tasks.copy_artifacts() == 1
    assert key_of(bad) not in second.sizes(prefix_for(bad.pk))
    assert len(second.sizes(prefix_for(bad.pk))) == 2, "its other files are there"
    assert content(second, key_of(good, "b")) == b"fine"
    row = ArtifactCopy.objects.get(pk=bad.pk)
    assert (row.is_damaged, row.tries, row.copied_at) == (True, 1, None)
    assert "other bytes than announced" in row.last_error
    assert row.next_try_at > clock.now()
    assert copies.waiting().count() == 0, "nobody waits for what does not exist"


def again() -> int:
    """The next run, as if the time of all tries had come."""
    ArtifactCopy.objects.update(next_try_at=clock.now())
    return tasks.copy_artifacts()


def test_what_both_stores_lost_stays_damaged_until_one_has_it_again(folders, alice, monkeypatch):
    first, second = folders
    artifact = given(alice)
    key = key_of(artifact)
    tasks.copy_artifacts()
    damage(first, key)
    damage(second, key)
    copies.suspect(artifact.pk)
    for tries in (1, 2):
        assert again() == 0
        row = ArtifactCopy.objects.get()
        assert (row.is_damaged, row.copied_at, row.suspected_at, row.tries) == (True, None, None, tries)
    with monkeypatch.context() as away:
        away.setattr(second, "chunks", lambda key: (_ for _ in ()).throw(OSError("timed out")))
        assert again() == 0
    assert ArtifactCopy.objects.get().is_damaged, "a store that is away is no verdict"
    alert = Alert.objects.open().get()
    assert alert.kind == "artifacts_damaged"
    assert "1 artifacts" in alert.message
    first.write(key, [FILES["weights.bin"]])
    assert again() == 1
    assert content(second, key) == FILES["weights.bin"]
    row = ArtifactCopy.objects.get()
    assert (row.is_damaged, row.copied_at is None, row.checked_files, row.lost_files) == (False, False, 0, 0)
    assert not Alert.objects.open().exists()


def test_a_check_goes_on_where_it_stopped_and_forgets_no_loss(folders, alice):
    first, second = folders
    artifact = given(alice, {"a": b"1", "b": b"2", "c": b"3"})
    tasks.copy_artifacts()
    damage(first, key_of(artifact, "a"))
    damage(second, key_of(artifact, "a"))
    damage(first, key_of(artifact, "b"))
    copies.suspect(artifact.pk)
    without_time = copying.Stores(first, second, time.monotonic() - 1)
    for checked in (1, 2):
        assert not copies._copy_one(without_time, artifact.pk)
        row = ArtifactCopy.objects.get()
        assert (row.checked_files, row.lost_files, row.repaired_files) == (checked, 1, checked - 1)
        assert row.suspected_at is not None
    assert not copies._copy_one(without_time, artifact.pk)
    row = ArtifactCopy.objects.get()
    assert (row.is_damaged, row.suspected_at, row.checked_files) == (True, None, 0)
    assert "1 files" in row.last_error


def test_checks_take_turns_and_keep_no_copy_waiting(folders, alice):
    carol = stage.organisation("carol")
    many = [given(alice, {"a": str(number).encode()}) for number in range(3)]
    one = given(carol, {"a": b"carol's"})
    tasks.copy_artifacts()
    assert all(copies.suspect(each.pk) for each in [*many, one])
    assert list(copies._due_checks().values_list("pk", flat=True)) == [many[0].pk, one.pk]
    new = given(carol, {"a": b"new"})
    assert tasks.copy_artifacts() == 3
    assert ArtifactCopy.objects.get(pk=new.pk).copied_at is not None
    assert set(ArtifactCopy.objects.exclude(suspected_at=None).values_list("pk", flat=True)) == {
        many[1].pk,
        many[2].pk,
    }


def test_claims_of_damage_have_a_number_a_day(folders, alice, monkeypatch):
    _, second = folders
    monkeypatch.setattr(copies, "CLAIMS_PER_DAY_MAX", 2)
    many = [given(alice, {"a": str(number).encode()}) for number in range(3)]
    other = given(stage.organisation("carol"), {"a": b"carol's"})
    tasks.copy_artifacts()
    assert [copies.suspect(each.pk) for each in many] == [True, True, False]
    assert copies.suspect(other.pk), "another organisation has its own"
    asked = fallback.stores_for(many[2], list(many[2].parts.all()), is_damaged=True)
    assert asked(key_of(many[2], "a")) is second, "whoever claims it is sent to the copy all the same"
    assert copies.suspect(many[2].pk, is_measured=True)
    again()
    again()
    monkeypatch.setattr(copies, "SUSPECT_EVERY", timedelta(0))
    assert not copies.suspect(many[0].pk), "checks of this day count"
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(hours=25))
    ArtifactCopy.objects.update(suspected_at=None)
    assert copies.suspect(many[0].pk)


def test_the_copy_goes_with_its_artifact(pair, alice):
    first, second = pair
    artifact = given(alice)
    tasks.copy_artifacts()
    prune.delete_for(alice, artifact.pk, actor="alice")
    assert first.sizes(prefix_for(artifact.pk)) == {}
    assert len(second.sizes(prefix_for(artifact.pk))) == 3, "no request waits for the second store"
    assert prune.prune_all() == 1
    assert second.sizes(prefix_for(artifact.pk)) == {}
    assert not ArtifactCopy.objects.exists()


def test_a_store_that_is_away_keeps_neither_the_others_bytes_nor_its_own(folders, alice, settings, tmp_path):
    first, second = folders
    artifact, other = given(alice, {"a": b"1"}), given(alice, {"a": b"2"})
    tasks.copy_artifacts()
    (tmp_path / "other disk").rename(tmp_path / "unplugged")
    prune.delete_for(alice, artifact.pk, actor="alice")
    assert first.sizes(prefix_for(artifact.pk)) == {}
    assert fetch(other) == {"a": b"2"}, "nobody needs the second store for this"
    assert prune.prune_all() == 0
    assert ArtifactCopy.objects.get(pk=artifact.pk).next_try_at > clock.now(), "tried again in minutes, not each sweep"
    (tmp_path / "unplugged").rename(tmp_path / "other disk")
    ArtifactCopy.objects.update(next_try_at=clock.now())
    assert len(second.sizes(prefix_for(artifact.pk))) == 1
    assert prune.prune_all() == 1
    assert second.sizes(prefix_for(artifact.pk)) == {}
    assert list(ArtifactCopy.objects.values_list("pk", flat=True)) == [other.pk]


def test_a_first_store_that_is_away_is_not_suspected_and_asked_once(folders, alice, monkeypatch):
    first, second = folders
    artifact = given(alice, {"a": b"1"})
    parts, asked = list(artifact.parts.all()), list[str]()
    tasks.copy_artifacts()

    def away(prefix):
        asked.append(prefix)
        raise OSError("timed out")

    monkeypatch.setattr(first, "sizes", away)
    for _ in range(2):
        assert fallback.stores_for(artifact, parts)(key_of(artifact, "a")) is second
    assert len(asked) == 1, "the second reader does not wait for it"
    assert ArtifactCopy.objects.get().suspected_at is None
    monkeypatch.undo()
    monkeypatch.setattr(fallback, "_away_until", {first: time.monotonic() - 1})
    assert fallback.stores_for(artifact, parts)(key_of(artifact, "a")) is first


def test_a_first_store_that_cannot_delete_keeps_no_copy_alive(folders, alice, monkeypatch):
    first, second = folders
    artifact = given(alice, {"a": b"1"})
    tasks.copy_artifacts()
    with monkeypatch.context() as broken:
        broken.setattr(first, "delete_prefix", lambda prefix: (_ for _ in ()).throw(OSError("read-only file system")))
        prune.delete_for(alice, artifact.pk, actor="alice")
        assert prune.prune_all() == 1, "the first failed again, and the sweep went on to the copy"
        assert second.sizes(prefix_for(artifact.pk)) == {}
    assert prune.prune_all() == 1
    assert first.sizes(prefix_for(artifact.pk)) == {}


def test_a_sweep_of_copies_ends_at_the_first_failure(folders, alice, tmp_path):
    gone = [given(alice, {"a": str(number).encode()}) for number in range(3)]
    tasks.copy_artifacts()
    (tmp_path / "other disk").rename(tmp_path / "unplugged")
    for artifact in gone:
        prune.delete_for(alice, artifact.pk, actor="alice")
    assert prune.prune_all() == 0
    assert copies.left_over().count() == 2, "one was tried and put off"


def test_bytes_that_come_after_the_deletion_go_too(folders, alice, monkeypatch):
    _, second = folders
    artifact = given(alice, {"a": b"1", "b": b"2"})
    write = second.write

    def deleted_meanwhile(key, chunks):
        write(key, chunks)
        if key.endswith("000000"):
            prune.delete_for(alice, artifact.pk, actor="alice")

    monkeypatch.setattr(second, "write", deleted_meanwhile)
    assert tasks.copy_artifacts() == 0
    assert second.sizes(prefix_for(artifact.pk)) == {}
    late = ArtifactCopy.objects.get()
    assert late.busy_until is not None, "the row stays while bytes may come"
    write(key_for(artifact.pk, 0, 1), [b"2"])  # of a worker that was killed, or hung
    moment = late.busy_until + timedelta(seconds=1)
    monkeypatch.setattr(clock, "now", lambda: moment)
    prune.prune_all()
    assert second.sizes(prefix_for(artifact.pk)) == {}
    assert not ArtifactCopy.objects.exists()


def test_a_copy_goes_on_where_it_stopped(folders, alice, monkeypatch):
    _, second = folders
    artifact = given(alice, {"a": b"1", "b": b"2", "c": b"3"})
    write, written = second.write, list[str]()

    def breaks_once(key, chunks):
        if len(written) == 1:
            written.append("broke")
            raise OSError("no space left on device")
        written.append(key)
        write(key, chunks)

    monkeypatch.setattr(second, "write", breaks_once)
    assert tasks.copy_artifacts() == 0
    row = ArtifactCopy.objects.get()
    assert (row.tries, row.copied_at, row.is_damaged) == (1, None, False)
    assert "no space left" in row.last_error
    assert tasks.copy_artifacts() == 0, "not before its time"
    ArtifactCopy.objects.update(next_try_at=clock.now())
    assert tasks.copy_artifacts() == 1
    assert written == [key_of(artifact, "a"), "broke", key_of(artifact, "b"), key_of(artifact, "c")]


def test_organisations_take_turns(folders, alice):
    many = [given(alice, {"a": str(number).encode()}) for number in range(3)]
    one = given(stage.organisation("carol"), {"a": b"carol's"})
    assert list(copies._due_copies().values_list("pk", flat=True)) == [many[0].pk, one.pk, many[1].pk, many[2].pk]


def test_copies_that_are_late_alert_and_are_counted(folders, alice, tmp_path, monkeypatch, rf):
    (tmp_path / "other disk").rename(tmp_path / "unplugged")
    given(alice, {"a": b"1"})
    tasks.copy_artifacts()
    assert not Alert.objects.exists(), "it is not late yet"
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(hours=7))
    tasks.copy_artifacts()
    assert "1 artifacts have no second copy" in Alert.objects.open().get().message
    text = metrics.metrics(rf.get("/metrics")).content.decode()
    assert 'souk_artifact_copies{state="waiting"} 1.0' in text
    assert float(text.split("\nsouk_artifact_copies_behind_seconds ")[1].split()[0]) > 6 * 3600
    (tmp_path / "unplugged").rename(tmp_path / "other disk")
    assert tasks.copy_artifacts() == 1
    assert not Alert.objects.open().exists()


def test_the_alert_closes_once_the_second_store_is_switched_off(folders, alice, settings, monkeypatch):
    given(alice, {"a": b"1"})
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(hours=7))
    copies.alert_behind()
    assert Alert.objects.open().exists()
    settings.SOUK_ARTIFACT_SECOND_STORE = ""
    assert "jobs.tasks.copy_artifacts" in {each["task"] for each in settings.CELERY_BEAT_SCHEDULE.values()}
    assert tasks.copy_artifacts() == 0
    assert not Alert.objects.open().exists()


def test_whoever_cries_wolf_has_the_stores_read_once(folders, alice, monkeypatch):
    artifact = given(alice, {"a": b"1"})
    assert not copies.suspect(artifact.pk), "there is no copy"
    tasks.copy_artifacts()
    assert copies.suspect(artifact.pk)
    assert tasks.copy_artifacts() == 1
    assert not copies.suspect(artifact.pk)
    assert tasks.copy_artifacts() == 0
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + copies.SUSPECT_EVERY + timedelta(seconds=1))
    assert copies.suspect(artifact.pk)


def test_another_second_store_gets_all_copies_anew(folders, alice, settings, tmp_path):
    artifact = given(alice, {"a": b"1"})
    tasks.copy_artifacts()
    settings.SOUK_ARTIFACT_SECOND_FOLDER = str(tmp_path / "third disk")
    (tmp_path / "third disk").mkdir()
    assert tasks.copy_artifacts() == 1
    third = stores.get_second_store()
    assert third is not None
    assert content(third, key_of(artifact, "a")) == b"1"


def test_a_pruned_or_condemned_checkpoint_is_not_copied(folders, alice):
    artifact = given(alice, {"a": b"1"})
    Artifact.objects.filter(pk=artifact.pk).update(kind="checkpoint", condemned_at=clock.now())
    assert tasks.copy_artifacts() == 0
    assert not ArtifactCopy.objects.exists()


def test_the_rate_is_kept(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    monkeypatch.setattr(time, "sleep", slept.append)
    pace = copying.Pace(10 * copying.MIB)
    assert list(pace.limit([bytes(copying.MIB)] * 3)) == [bytes(copying.MIB)] * 3
    assert slept == pytest.approx([0.1, 0.2])


def test_nothing_is_copied_without_a_second_store(local_store, alice):
    artifact = given(alice, {"a": b"1"})
    assert tasks.copy_artifacts() == 0
    assert fetch(artifact) == {"a": b"1"}
    assert not ArtifactCopy.objects.exists()


def test_the_checks_pass_for_the_settings_of_these_tests(folders, settings):
    call_command("check")
    shutil.rmtree(settings.SOUK_ARTIFACT_SECOND_FOLDER)
    with pytest.raises(FileNotFoundError, match="Is its disk mounted"):
        stores.get_second_store()
