"""What a marketplace may answer instead of a release, and that nothing of it is believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provider_agent.errors import Retryable, Unreachable, UpdateRefused
from provider_agent.protocol import ReleaseManifest
from provider_agent.updating.fetching import answers, fetch_manifest, fetch_wheel
from tests.integration.provider_agent.updating.installation import Installation, installed

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Installation]:
    """A marketplace that signs; no agent runs."""
    with installed(tmp_path) as made:
        made.add_release("0.2.0")
        yield made


def manifest_of(market: Installation) -> ReleaseManifest:
    return ReleaseManifest.model_validate_json(fetch_manifest(market.server, "0.2.0")[0])


def test_a_wheel_arrives_whole_under_its_signed_hash(market: Installation, tmp_path: Path) -> None:
    fetch_wheel(market.server, manifest_of(market), tmp_path / "wheel")
    assert (tmp_path / "wheel").read_bytes() == b"the wheel of 0.2.0"


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        (b"the wheel", Unreachable, "broke off after 9 of 18 bytes"),
        (b"mallorys own code!", UpdateRefused, "not the file that was signed"),
        (b"the wheel of 0.2.0 and more", UpdateRefused, "longer than 18 bytes"),
    ],
)
def test_another_wheel_than_the_signed_one_is_refused(
    market: Installation, tmp_path: Path, body: bytes, error: type[Exception], match: str
) -> None:
    manifest = manifest_of(market)
    market.served[f"/dist/{manifest.wheel}"] = body
    with pytest.raises(error, match=match):
        fetch_wheel(market.server, manifest, tmp_path / "wheel")


def test_a_release_that_is_not_there_is_refused_and_an_outage_is_tried_again(market: Installation) -> None:
    with pytest.raises(UpdateRefused, match=r"releases/0\.9\.0/manifest\.json"):
        fetch_manifest(market.server, "0.9.0")
    with pytest.raises(Retryable, match="No answer from"):
        fetch_manifest(NOWHERE, "0.2.0")


def test_a_server_that_is_down_or_has_no_address_does_not_answer(market: Installation) -> None:
    assert answers(market.server, market.server)
    assert not answers(market.server, NOWHERE)
    assert not answers("http://[")
