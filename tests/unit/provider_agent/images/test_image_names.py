"""A customer's image name reaches the provider's network: whose names an engine is asked for, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from provider_agent.errors import ImageUnavailable
from provider_agent.executors.docker.registries import require_registry
from provider_agent.protocol import (
    LOCAL_IMAGES,
    PUBLIC_REGISTRIES,
    is_allowed_registry,
    registry_of,
)
from runtimes.contract import is_public_address
from tests.unit.provider_agent.images.engine import DIGEST, NAME, OTHER, FakeEngine

SECRET = "<title>the provider's router</title>"
OF_THE_INSIDE = [
    "169.254.169.254/x:1",
    "127.0.0.1:5000/x",
    "localhost/x",
    "localhost:5000/x",
    "LOCALHOST/x",
    "10.0.0.5/x:1",
    "0.0.0.0:80/x",
    "router.lan/x",
    "docker.io:8443/x",
    "quay.io:22/x",
    "quay.io./x",
    "quay.io.mallory.example/x",
]


def addresses(*found: str) -> Any:
    return lambda *_, **__: [(2, 1, 6, "", (each, 443)) for each in found]


@pytest.mark.parametrize(
    ("name", "registry"),
    [
        ("python:3.12", "docker.io"),
        ("alice/program@" + DIGEST, "docker.io"),
        ("index.docker.io/alice/program", "docker.io"),
        ("GHCR.io/alice/program", "ghcr.io"),
        ("localhost/x", "localhost"),
        ("registry:5000/x", "registry:5000"),
        ("169.254.169.254/x:1", "169.254.169.254"),
    ],
)
def test_registry_is_read_from_a_name_as_an_engine_reads_it(name: str, registry: str) -> None:
    assert registry_of(name) == registry


@pytest.mark.parametrize("name", OF_THE_INSIDE)
def test_names_of_the_providers_network_are_not_asked_for(engine: FakeEngine, name: str) -> None:
    assert not is_allowed_registry(name, PUBLIC_REGISTRIES)
    with pytest.raises(ImageUnavailable, match="This node fetches no images of the registry"):
        engine.ensure(name)
    assert [path for path in engine.asked if not path.startswith("/images/")] == [], "its registry was asked"


def test_registry_that_the_provider_lists_is_the_providers_choice() -> None:
    require_registry("10.0.0.5:5000/x", ("10.0.0.5:5000",))
    with pytest.raises(ImageUnavailable):
        require_registry("10.0.0.5:5001/x", ("10.0.0.5:5000",))


@pytest.mark.parametrize("inside", ["10.0.0.5", "127.0.0.1", "169.254.169.254", "224.0.0.1", "::1", "fe80::1%eth0"])
def test_public_registry_with_an_address_of_the_inside_is_not_asked(inside: str) -> None:
    assert not is_public_address(inside)
    with pytest.raises(ImageUnavailable, match="no public address"):
        require_registry(NAME, PUBLIC_REGISTRIES, resolve=addresses("8.8.8.8", inside))
    require_registry(NAME, PUBLIC_REGISTRIES, resolve=addresses("8.8.8.8"))


def test_ipv4_addresses_inside_of_ipv6_ones_are_seen() -> None:
    assert not is_public_address("::ffff:169.254.169.254")
    assert not is_public_address("2002:7f00:1::")


def test_what_a_registry_answers_stays_in_the_providers_log(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.answers["/images/create"] = 500, {"message": f"error parsing HTTP 200 response body: {SECRET}"}
    with caplog.at_level("WARNING"), pytest.raises(ImageUnavailable) as caught:
        engine.ensure(registries=("quay.io",))
    assert SECRET not in str(caught.value)
    assert "anyone may pull it without signing in" in str(caught.value)
    assert SECRET in caplog.text
    with pytest.raises(ImageUnavailable, match="router"):
        engine.ensure(registries=None)  # the provider's own image: its own words


def test_image_that_only_the_providers_machine_has_is_not_run(engine: FakeEngine) -> None:
    engine.has()
    with pytest.raises(ImageUnavailable, match="could not be fetched"):
        engine.ensure()
    engine.ensure(registries=(LOCAL_IMAGES,))
    engine.ensure(registries=None)


def test_private_image_that_the_provider_pulled_is_not_run(engine: FakeEngine) -> None:
    engine.has(DIGEST)
    engine.answers[f"/distribution/{NAME}/json"] = 401, {"message": "unauthorized"}
    with pytest.raises(ImageUnavailable, match="could not be fetched"):
        engine.ensure()
    assert "/images/create" not in engine.asked


@pytest.mark.parametrize("before", ["alice/..", "quay.io/..", "quay.io/alice/../..", "quay.io/./.."])
def test_name_that_leads_elsewhere_in_the_engine_finds_no_private_image(engine: FakeEngine, before: str) -> None:
    """`alice/../../images/private` is, as a part of the engine's addresses, an image that only the provider has."""
    found = {"Id": OTHER, "RepoDigests": [f"private@{DIGEST}"], "Descriptor": {"digest": DIGEST}}
    engine.answers["/images/private/json"] = 200, found
    with pytest.raises(ImageUnavailable, match="is no image's name"):
        engine.ensure(f"{before}/../images/private")
    assert engine.asked == [], "the engine was asked"


def test_image_that_its_registry_gives_to_anyone_is_run_without_a_pull(engine: FakeEngine) -> None:
    engine.has(DIGEST)
    engine.publishes(DIGEST)
    engine.ensure()
    assert "/images/create" not in engine.asked


def test_image_under_a_published_name_with_other_bytes_is_pulled_anew(engine: FakeEngine) -> None:
    engine.has(OTHER)
    engine.publishes(DIGEST)
    with pytest.raises(ImageUnavailable):
        engine.ensure()
    assert "/images/create" in engine.asked
