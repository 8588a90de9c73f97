"""`souk-agent update --hold` and `--auto` count for an agent that runs, from its next beat on."""

from __future__ import annotations

from pathlib import Path

import pytest

from provider_agent.commands import update
from provider_agent.packaging.prefix import Prefix, Record
from provider_agent.protocol import UpdateOrder
from provider_agent.updating import update_request
from provider_agent.updating.update_request import Updates, read_update_request, update_facts
from tests.integration.provider_agent.conftest import Bob
from tests.integration.provider_agent.fake_server import FakeServer


def test_hold_and_auto_count_without_a_new_start(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = Bob(server, tmp_path / "bob")
    bob.enrol()
    monkeypatch.setattr(update_request, "own_prefix", lambda: Prefix(tmp_path))
    running = Updates(bob.folder)
    order = UpdateOrder(version="0.2.0")

    def accept_order() -> str:
        running.accept(order, is_checking=False)
        found = read_update_request(bob.folder)
        return found.version if found else ""

    assert (accept_order(), update_facts(bob.folder).mode) == ("0.2.0", "auto")
    assert bob.run("update", "--hold").returncode == 0
    assert read_update_request(bob.folder) is None, "withdrawn at once"
    assert (accept_order(), update_facts(bob.folder).mode) == ("", "manual")
    assert bob.run("update", "--auto").returncode == 0
    assert (accept_order(), update_facts(bob.folder).mode) == ("0.2.0", "auto")


def test_what_was_rolled_back_is_asked_for_no_more_but_stays_known(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that `update --now` can name it, and the updater is not started for it every minute."""
    bob = Bob(server, tmp_path / "bob")
    bob.enrol()
    monkeypatch.setattr(update_request, "own_prefix", lambda: Prefix(tmp_path))
    Prefix(tmp_path).save(Record(bad={"0.2.0": {"reason": "it did not check in", "at": "2026-11-22T00:00:00+00:00"}}))
    running = Updates(bob.folder)
    running.accept(UpdateOrder(version="0.2.0"), is_checking=False)
    assert (read_update_request(bob.folder), running.wanted) == (None, "0.2.0")
    running.accept(UpdateOrder(version="0.3.0"), is_checking=False)
    found = read_update_request(bob.folder)
    assert found is not None
    assert found.version == "0.3.0"


def test_who_updates_now_gets_the_problem_and_waits_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "NOW_SECONDS_MAX", 1.0)
    prefix = Prefix(tmp_path)
    before = Record(last={"outcome": "updated", "version": "0.1.0"})
    prefix.save(before)
    assert update._wait_for_outcome(prefix.record_path, before) is None, "an older outcome is none"
    prefix.save(Record(last=before.last, problem={"reason": "The disk is full.", "at": "2026-11-22T00:00:00+00:00"}))
    found = update._wait_for_outcome(prefix.record_path, before)
    assert found is not None
    assert found.problem["reason"] == "The disk is full."
