"""What `python -m provider_agent.updating` exits with, which is all that units and services see of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from provider_agent.packaging.service import choose_way
from provider_agent.updating.__main__ import EXIT_FAILED, EXIT_REFUSED, main
from tests.integration.provider_agent.updating.installation import Installation, installed, stop

pytestmark = pytest.mark.skipif(choose_way() != "background", reason="systemd runs here; its units are not the tests'")


def run(monkeypatch: pytest.MonkeyPatch, made: Installation, verb: str, *words: str) -> int:
    """One call of the program, in this process."""
    command = ["souk-agent-update", verb, "--prefix", str(made.prefix.root), "--seconds", "0.3", *words]
    monkeypatch.setattr(sys, "argv", command)
    return main()


def test_nothing_to_do_is_success(
    bob: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, bob, "once") == 0
    assert capsys.readouterr().out == "nothing\n"


def test_a_release_that_is_rolled_back_exits_as_refused(
    bob: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bob.add_release("0.2.0", "crashes")
    bob.want("0.2.0")
    assert run(monkeypatch, bob, "once") == EXIT_REFUSED
    assert capsys.readouterr().out == "rolled back\n"
    assert bob.is_settled("0.1.0")


def test_an_unknown_release_exits_as_refused_with_one_line(
    bob: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bob.want("0.9.0")
    assert run(monkeypatch, bob, "once") == EXIT_REFUSED
    assert capsys.readouterr().err.startswith(f"souk-agent: {bob.server}/dist/releases/0.9.0/manifest.json: ")


def test_an_installation_that_lost_its_marketplace_exits_as_failed(
    bob: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (bob.prefix.root / "market.json").unlink()
    bob.want("0.2.0")
    assert run(monkeypatch, bob, "once") == EXIT_FAILED
    assert "does not know its marketplace" in capsys.readouterr().err


def test_only_a_crashed_agent_of_this_installation_is_revived(
    bob: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs, stopped = bob.nodes()
    before = (runs.root / "agent.pid").read_text()
    stop(stopped)
    for data in (runs.root, stopped.root, tmp_path / "mallory"):
        assert run(monkeypatch, bob, "revive", "--data", str(data)) == 0
    assert (runs.root / "agent.pid").read_text() == before
    assert not (stopped.root / "agent.pid").exists()


def test_a_crashed_agent_is_revived_unless_an_updater_works(bob: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed = bob.nodes()[0]
    stop(crashed)
    (crashed.root / "agent.ended").unlink()
    (crashed.root / "agent.pid").write_text("0\n")
    with bob.prefix.only_updater():
        assert run(monkeypatch, bob, "revive", "--data", str(crashed.root)) == 0
    assert not bob.is_settled("0.1.0")
    assert run(monkeypatch, bob, "revive", "--data", str(crashed.root)) == 0
    assert bob.is_settled("0.1.0")


def test_an_agent_that_cannot_be_revived_exits_as_failed_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with installed(tmp_path, "bob-1") as bob:
        crashed = bob.nodes()[0]
        stop(crashed)
        (crashed.root / "agent.ended").unlink()
        (crashed.root / "agent.pid").write_text("0\n")
        (bob.prefix.program.resolve().parent.parent / "manner").write_text("crashes")
        assert run(monkeypatch, bob, "revive", "--data", str(crashed.root)) == EXIT_FAILED
        assert "a bad release" in capsys.readouterr().err
