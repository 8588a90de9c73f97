"""Answers to the updater that the marketplace did not send, or sent long ago."""

from __future__ import annotations

import json
import time

import pytest

from provider_agent.errors import Unreachable, UpdateRefused
from provider_agent.packaging.prefix import Prefix
from provider_agent.packaging.service import choose_way
from provider_agent.protocol import RELEASE_PREFIX
from provider_agent.updating import fetching, trial, updater
from provider_agent.updating.fetching import answers
from provider_agent.updating.update_request import read_update_request
from tests.integration.provider_agent.updating.installation import Installation

pytestmark = pytest.mark.skipif(choose_way() != "background", reason="systemd runs here; its units are not the tests'")


@pytest.mark.parametrize(
    "health",
    [
        (403, b'{"status": "ok"}'),
        (302, b"see the hotel's page"),
        (200, b"<html>Welcome to our WiFi</html>"),
        (200, b"[]"),
        (503, b'{"status": "down"}'),
        (429, b"slow down"),
    ],
)
def test_only_the_marketplaces_own_word_counts_as_its_answer(bob: Installation, health: tuple[int, bytes]) -> None:
    assert answers(bob.server)
    bob.health = health
    assert not answers(bob.server)


def test_a_firewall_that_refuses_every_agent_rolls_back_no_release(bob: Installation) -> None:
    """403 for all, the old release's updater among them: the agents end, and nothing is known of the new release."""
    bob.add_release("0.2.0", "refused")
    bob.want("0.2.0")
    with pytest.MonkeyPatch.context() as patch:

        def fall(prefix: Prefix, nodes: list[str]) -> str:
            bob.health = (403, b"Forbidden")
            return trial.restart_agents(prefix, nodes)

        patch.setattr(updater, "restart_agents", fall)
        assert bob.updater().once() == "open"
    assert "0.2.0" not in bob.prefix.record().bad
    bob.health = (200, b'{"status": "ok"}')
    release = bob.prefix.release("current")
    assert release is not None
    (release / "manner").write_text("well")
    assert bob.updater().once() == "updated"


def test_an_agent_that_the_marketplace_itself_refuses_is_rolled_back(bob: Installation) -> None:
    bob.add_release("0.2.0", "refused")
    bob.want("0.2.0")
    assert bob.updater().once() == "rolled back"


def test_names_that_lead_elsewhere_are_refused(bob: Installation) -> None:
    for name in ("../../etc/cron.d/x", "gpusouk-0.2.0/../../x-py3-none-any.whl", "gpusouk-0.2.0-py3-none-any.whl\n"):
        bob.add_release("0.2.0")
        at = "/dist/releases/0.2.0/manifest"
        manifest = bob.served[f"{at}.json"].replace(b'"gpusouk-0.2.0-py3-none-any.whl"', json.dumps(name).encode())
        bob.served[f"{at}.json"] = manifest
        bob.served[f"{at}.sig"] = bob.key.sign(RELEASE_PREFIX + manifest)
        bob.want("0.2.0", now=True)
        with pytest.raises(UpdateRefused, match="wheel"):
            bob.updater().once()
    for version in ("../0.2.0", "0.2.0/..", "0.2.0\n", "", "1" * 99):
        bob.nodes()[0].update_request.write_bytes(b'{"version": ' + json.dumps(version).encode() + b"}")
        assert read_update_request(bob.nodes()[0]) is None


def test_a_download_that_drips_for_ever_ends(bob: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "SECONDS_MAX", 0.5)
    bob.add_release("0.2.0")
    bob.drip_seconds = 0.2
    bob.want("0.2.0")
    began = time.monotonic()
    with pytest.raises(Unreachable, match="did not come within"):
        bob.updater().once()
    assert time.monotonic() - began < 10


def test_a_manifest_that_allows_to_go_back_moves_only_who_has_that_version(bob: Installation) -> None:
    """A replay of it, later: signed, and of no use to who has gone on."""
    at = "/dist/releases/0.1.5/manifest"
    bob.add_release("0.1.5")
    manifest = json.dumps({**json.loads(bob.served[f"{at}.json"]), "rollback_from": "0.2.0"}).encode()
    bob.served[f"{at}.json"], bob.served[f"{at}.sig"] = manifest, bob.key.sign(RELEASE_PREFIX + manifest)
    for version, outcome in (("0.2.0", "updated"), ("0.1.5", "updated"), ("0.3.0", "updated"), ("0.1.5", "refused")):
        release = bob.add_release(version)
        assert (release / ".complete").exists()
        bob.served[f"{at}.json"], bob.served[f"{at}.sig"] = manifest, bob.key.sign(RELEASE_PREFIX + manifest)
        bob.want(version)
        if outcome == "refused":
            with pytest.raises(UpdateRefused, match="not newer"):
                bob.updater().once()
        else:
            assert bob.updater().once() == outcome, version
    assert bob.is_settled("0.3.0")
