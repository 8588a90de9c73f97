"""An image whose manifests name addresses is not pulled by an engine that would ask them."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from typing import Any

import pytest

from provider_agent.errors import ImageUnavailable
from provider_agent.executors.docker import images, manifests
from provider_agent.executors.docker.manifests import repository_of, require_no_addresses
from provider_agent.executors.docker.registries import RegistryAnswer
from tests.unit.provider_agent.images.engine import FakeEngine
from tests.unit.provider_agent.images.registry import FakeRegistry

INSIDE = "http://192.168.1.1/reboot"
LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" + "c" * 64, "size": 1}
OURS = {"platform": {"os": "linux", "architecture": "amd64"}}


def image(**layer: Any) -> dict[str, Any]:
    return {"schemaVersion": 2, "config": LAYER, "layers": [LAYER, LAYER | layer]}


def test_image_of_several_processors_is_read_as_far_as_this_one_goes(registry: FakeRegistry) -> None:
    ours, theirs = registry.add(image()), "sha256:" + "d" * 64
    about = {"platform": {"os": "unknown", "architecture": "unknown"}}
    of_ours = registry.add(image(size=2))
    index = registry.index(
        {"digest": ours} | OURS,
        {"digest": theirs, "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": of_ours, "annotations": {"vnd.docker.reference.digest": ours}} | about,
        {"digest": "sha256:" + "e" * 64, "annotations": {"vnd.docker.reference.digest": theirs}} | about,
    )
    registry.check(index)
    read = [path.rpartition("/")[2] for path in registry.asked]
    assert read.count("token") == 1
    assert set(read) == {"token", index, ours, of_ours}


@pytest.mark.parametrize("key", ["urls", "URLs", "url\u017f"])
def test_address_of_a_layer_is_found_as_engines_spell_it(registry: FakeRegistry, key: str) -> None:
    registry.check(registry.add(image(**{key: []})))
    with pytest.raises(ImageUnavailable, match="names addresses of its own"):
        registry.check(registry.add(image(**{key: [INSIDE]})))


@pytest.mark.parametrize("platform", [OURS, {}, {"platform": {"architecture": "x86_64"}}, {"platform": "linux"}])
def test_address_is_found_whatever_the_index_calls_this_processor(registry: FakeRegistry, platform: Any) -> None:
    bad = registry.add(image(urls=[INSIDE]))
    with pytest.raises(ImageUnavailable, match="names addresses of its own"):
        registry.check(registry.index({"digest": registry.add(image())} | OURS, {"digest": bad} | platform))
    with pytest.raises(ImageUnavailable, match="names addresses of its own"):
        registry.check(registry.index({"digest": registry.index({"digest": bad} | platform)}))


@pytest.mark.parametrize(
    "other",
    [
        {"platform": {"os": "linux", "architecture": "arm64"}},
        {
            "platform": {"os": "unknown", "architecture": "unknown"},
            "annotations": {"vnd.docker.reference.digest": "sha256:" + "d" * 64},
        },
    ],
)
def test_address_is_found_in_what_an_index_lists_for_another_processor_as_well(
    registry: FakeRegistry, other: dict[str, Any]
) -> None:
    bad = {"digest": registry.add(image(urls=[INSIDE]))}
    foreign = {"digest": "sha256:" + "d" * 64, "platform": {"os": "linux", "architecture": "arm64"}}
    for entries in ([bad | other, bad | OURS], [bad | OURS, bad | other]):
        with pytest.raises(ImageUnavailable, match="names addresses of its own"):
            registry.check(registry.index(foreign, *entries))


@pytest.mark.parametrize("odd", [[], {}, ["arm64"], 7, None])
def test_platform_or_annotation_of_another_type_is_read_as_possible(registry: FakeRegistry, odd: Any) -> None:
    bad = {"digest": registry.add(image(urls=[INSIDE])), "annotations": {"vnd.docker.reference.digest": odd}}
    with pytest.raises(ImageUnavailable, match="names addresses of its own"):
        registry.check(registry.index(bad | {"platform": {"architecture": odd}}))


def test_address_of_a_manifest_or_of_the_configuration_is_found_too(registry: FakeRegistry) -> None:
    good = registry.add(image())
    for bad in (
        registry.index({"digest": good, "urls": [INSIDE]} | OURS),
        registry.add(image() | {"config": LAYER | {"urls": [INSIDE]}}),
    ):
        with pytest.raises(ImageUnavailable, match="names addresses of its own"):
            registry.check(bad)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"<html>",
        b"[" * 100_000,
        b'{"layers": [{"urls": ["%s"], "urls": []}]}' % INSIDE.encode(),
        b'{"layers": [{"urls": ["%s"], "URLS": []}]}' % INSIDE.encode(),
        b'{"manifests": [{"digest": "../blobs"}]}',
        b'{"manifests": "all"}',
        b" " * (manifests.MANIFEST_BYTES_MAX + 1),
    ],
    ids=["list", "page", "deep", "twice", "twice in capitals", "no digest", "no list", "large"],
)
def test_what_an_engine_may_read_otherwise_is_not_pulled(registry: FakeRegistry, data: bytes) -> None:
    with pytest.raises(RegistryAnswer):
        registry.check(registry.add(data))


def test_indexes_without_end_are_not_read(registry: FakeRegistry) -> None:
    digest = registry.add(image())
    for _ in range(manifests.DEPTH_MAX + 1):
        digest = registry.index({"digest": digest})
    wide = registry.index(*({"digest": registry.add(image(size=size))} for size in range(manifests.MANIFESTS_MAX)))
    for endless in (digest, wide):
        with pytest.raises(ImageUnavailable, match="more manifests than this node reads"):
            registry.check(endless)


def test_other_bytes_and_other_places_are_not_believed(registry: FakeRegistry) -> None:
    digest = registry.add(image(urls=[INSIDE]))
    registry.manifests[digest] = json.dumps(image()).encode()
    with pytest.raises(RegistryAnswer, match="other bytes"):
        registry.check(digest)
    registry.status = 302
    with pytest.raises(RegistryAnswer, match="answered 302"):
        registry.check(digest)
    assert "/elsewhere" not in registry.asked
    registry.realm = "ftp://192.168.1.1/token"
    with pytest.raises(RegistryAnswer, match="a token from"):
        registry.check(digest)


def test_registry_that_sends_a_byte_now_and_then_is_given_up(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "READING_SECONDS_MAX", 1.0)
    registry.pause_seconds = 0.05
    began = time.monotonic()
    with pytest.raises(RegistryAnswer, match="not read to its end within 1 s"):
        registry.check(registry.add(image()))
    assert time.monotonic() - began < 5


def test_connection_that_breaks_within_a_manifest_is_the_registrys_fault(registry: FakeRegistry) -> None:
    registry.is_cut = True
    with pytest.raises(RegistryAnswer):
        registry.check(registry.add(image()))


def test_reading_manifests_ends_when_nobody_waits_for_the_image(registry: FakeRegistry) -> None:
    cancelled = threading.Event()
    registry.pause_seconds = 0.05
    threading.Timer(0.5, cancelled.set).start()
    began = time.monotonic()
    with pytest.raises(RegistryAnswer, match="nobody waits"):
        registry.check(registry.add(image()), cancelled=cancelled)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("python:3.12", "library/python"),
        ("docker.io/python", "library/python"),
        ("alice/program@sha256:" + "a" * 64, "alice/program"),
        ("quay.io/alice/program:1@sha256:" + "a" * 64, "alice/program"),
        ("registry:5000/alice/program", "alice/program"),
        ("ghcr.io/program", "program"),
    ],
)
def test_repository_is_read_from_a_name(name: str, repository: str) -> None:
    assert repository_of(name) == repository


def test_engine_on_containerd_pulls_only_what_was_read(
    engine: FakeEngine, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "require_no_addresses", partial(require_no_addresses, origin=registry.origin))
    engine.answers["/info"] = 200, {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    engine.publishes(registry.add(image(urls=[INSIDE])))
    with pytest.raises(ImageUnavailable, match="names addresses of its own"):
        engine.ensure()
    assert "/images/create" not in engine.asked
    digest = registry.add(image())
    pinned = f"quay.io/alice/program@{digest}"
    engine.publishes(digest)
    engine.answers["/images/create"] = 200, {"status": "Pull complete", "id": "one"}
    engine.answers[f"/images/{pinned}/json"] = 200, {"Id": digest, "RepoDigests": [pinned]}
    engine.answers[f"/images/{digest}/tag"] = 201, {}
    engine.ensure()
    assert engine.asked[-3:] == ["/images/create", f"/images/{pinned}/json", f"/images/{digest}/tag"]


def test_engine_without_containerd_pulls_by_the_name(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "require_no_addresses", lambda *_, **__: pytest.fail("the registry was asked"))
    with pytest.raises(ImageUnavailable):
        engine.ensure()
    assert engine.asked[-1] == "/images/create"
