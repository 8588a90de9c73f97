"""The updater killed at each of its writes, on a full disk, beside another, after a request that changed."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provider_agent.errors import UpdateRefused
from provider_agent.packaging.prefix import Prefix, Record, Trial
from provider_agent.packaging.service import choose_way
from provider_agent.updating import trial, updater
from provider_agent.updating.update_request import clear_update_request, newest_rollback
from tests.integration.provider_agent.updating.installation import Installation, installed

pytestmark = pytest.mark.skipif(choose_way() != "background", reason="systemd runs here; its units are not the tests'")
STEPS_MAX = 40


class Killed(BaseException):
    """What SIGKILL is to a process: nothing below the call runs, nothing catches it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int, *, after: bool) -> Callable[[], bool]:
    """The process ends just before or after its `step`th write or restart; returns whether it came so far."""
    seen = 0

    def watch(verb: Callable[..., Any]) -> Callable[..., Any]:
        def act(*words: Any, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == step and not after:
                raise Killed
            done = verb(*words, **options)
            if seen == step:
                raise Killed
            return done

        return act

    monkeypatch.setattr(Prefix, "save", watch(Prefix.save))
    monkeypatch.setattr(Prefix, "point", watch(Prefix.point))
    monkeypatch.setattr(updater, "restart_agents", watch(trial.restart_agents))
    return lambda: seen >= step


@pytest.mark.timeout(900)  # some dozen updaters, each with an agent that starts and ends
@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("manner", "ends_with"), [("well", "0.2.0"), ("mute", "0.1.0")])
def test_an_updater_killed_around_each_write_is_repaired_by_the_next(
    tmp_path: Path, manner: Any, ends_with: str, after: bool
) -> None:
    for step in range(1, STEPS_MAX):
        with installed(tmp_path / str(step), "bob-1") as bob, pytest.MonkeyPatch.context() as patch:
            bob.add_release("0.2.0", manner)
            bob.want("0.2.0")
            was_reached = kill_at(patch, step, after=after)
            with contextlib.suppress(Killed):
                bob.updater().once()
            if not was_reached():
                assert step > 4, "hardly a step was watched"
                return
            patch.undo()
            patch.setattr(trial, "POLL_SECONDS", 0.05)
            patch.setattr(trial, "PROBE_SECONDS", 0.2)
            outcomes = [bob.updater().once() for _ in range(3)]
            assert outcomes[-1] == "nothing", (step, outcomes)
            assert bob.is_settled(ends_with), (step, outcomes, bob.links())
            record = bob.prefix.record()
            assert record.trial is None, step
            assert ("0.2.0" in record.bad) == (manner == "mute"), (step, "what is kept is not bad")
    pytest.fail("it never ended by itself")


def test_a_verdict_stands_although_the_updater_was_killed_before_it_was_done(bob: Installation) -> None:
    release = bob.add_release("0.2.0", "mute")
    bob.want("0.2.0")
    with pytest.MonkeyPatch.context() as patch:
        points: list[str] = []
        point = Prefix.point

        def kill_second(self: Prefix, link: Any, to: Path) -> None:
            points.append(link)
            if len(points) == 2:
                raise Killed
            point(self, link, to)

        patch.setattr(Prefix, "point", kill_second)
        with pytest.raises(Killed):
            bob.updater().once()
    (release / "manner").write_text("well")  # a minute later it would have checked in
    for folder in bob.nodes():
        folder.status.write_text(f'{{"release": "{release.name}", "contact_at": "x"}}')
    assert bob.updater().once() == "rolled back"
    assert bob.links() == ("0.1.0", "0.1.0")
    assert set(bob.prefix.record().bad) == {"0.2.0"}


@pytest.mark.skipif(os.geteuid() != 0, reason="a full disk is a small mount, which needs root")
def test_a_full_disk_keeps_no_bad_release_in_place(tmp_path: Path) -> None:
    (tmp_path / "prefix").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "souk-updates", str(tmp_path / "prefix")]
    subprocess.run(mount, check=True)
    try:
        with installed(tmp_path, "bob-1") as bob:
            new = bob.add_release("0.2.0", "mute")
            old = bob.prefix.release("good")
            assert old is not None
            nodes = [str(folder.root) for folder in bob.nodes()]
            bob.prefix.save(Record(Trial("0.2.0", new.name, "0.1.0", old.name, "now", nodes=nodes)))
            bob.prefix.point("current", new)
            with pytest.raises(OSError, match="No space"), (tmp_path / "prefix" / "filler").open("wb") as filler:
                while True:
                    filler.write(bytes(4096))
                    filler.flush()
            with pytest.raises(OSError, match="No space"):  # it cannot write what came of it, and says so
                bob.updater().once()
            assert bob.is_settled("0.1.0")
            (tmp_path / "prefix" / "filler").unlink()
            assert bob.updater().once() == "nothing"
            assert bob.prefix.record().trial is None
    finally:
        subprocess.run(["umount", str(tmp_path / "prefix")], check=True)


def test_of_two_updaters_one_works(bob: Installation) -> None:
    with bob.prefix.only_updater() as is_mine:
        assert is_mine
        assert bob.updater().once() == "busy"


def test_nobody_but_the_updater_can_hold_its_lock(bob: Installation) -> None:
    lock = bob.prefix.root / "update.lock"
    lock.touch(mode=0o644)
    lock.chmod(0o644)  # as install.sh leaves it
    assert bob.updater().once() == "nothing"
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_a_release_that_is_asked_for_once_is_tried_once(bob: Installation) -> None:
    """The provider's `update --now` broke off (Ctrl-C), and its request stayed."""
    bob.add_release("0.2.0", "mute")
    bob.want("0.2.0", now=True)
    assert [bob.updater().once() for _ in range(3)] == ["rolled back", "nothing", "nothing"]
    bob.add_release("0.2.0", "mute")
    bob.want("0.2.0", now=True)
    assert bob.updater().once() == "rolled back", "asked for anew it is tried anew"


def test_what_is_held_is_not_installed_whatever_was_requested_before(bob: Installation) -> None:
    """The agent wrote its request at the very moment at which the provider asked to hold updates."""
    bob.add_release("0.2.0")
    bob.want("0.2.0")
    bob.nodes()[0].config.write_text('{"updates": "manual"}')
    assert bob.updater().once() == "nothing"
    bob.nodes()[0].config.write_text('{"updates": "auto"}')
    assert bob.updater().once() == "updated"


def test_hold_during_the_installation_stops_it_before_the_switch(bob: Installation) -> None:
    bob.add_release("0.2.0")
    bob.want("0.2.0")
    with pytest.MonkeyPatch.context() as patch:

        def hold(*_: Any, **__: Any) -> None:
            bob.nodes()[0].config.write_text('{"updates": "manual"}')

        patch.setattr(updater, "install_release", hold)
        assert bob.updater().once() == "withdrawn"
    assert bob.links() == ("0.1.0", "0.1.0")


def test_why_nothing_came_of_an_update_can_be_read(bob: Installation) -> None:
    bob.add_release("0.2.0")
    bob.served["/dist/releases/0.2.0/manifest.sig"] = bytes(64)
    bob.want("0.2.0", now=True)
    with pytest.raises(UpdateRefused):
        bob.updater().once()
    assert "not signed by this marketplace's key" in bob.prefix.record().problem["reason"]
    bob.add_release("0.2.0")
    assert bob.updater().once() == "updated"
    assert bob.prefix.record().problem == {}


def test_a_clock_that_jumped_hides_no_rollback(bob: Installation) -> None:
    bad = {"0.2.0": {"reason": "old", "at": "2099-01-01T00:00:00+00:00"}}
    bob.prefix.save(Record(bad=bad))
    bob.add_release("0.3.0", "mute")
    bob.want("0.3.0")
    assert bob.updater().once() == "rolled back"
    found = newest_rollback(bob.prefix)
    assert found is not None
    assert found.version == "0.3.0"


def test_a_record_of_a_newer_updater_can_be_read(bob: Installation) -> None:
    bob.prefix.record_path.write_text(
        '{"trial": {"version": "0.2.0", "release": "r", "from_version": "0.1.0", "from_release": "f",'
        ' "began_at": "x", "mood": 1}, "bad": {"0.1.5": {"reason": "why", "at": "x"}}, "weather": 1}'
    )
    record = bob.prefix.record()
    assert record.trial is not None
    assert set(record.bad) == {"0.1.5"}


def test_what_kills_left_of_downloads_is_removed(bob: Installation) -> None:
    left = bob.prefix.root / ".fetch-dead"
    left.mkdir()
    (left / "half.whl").write_bytes(bytes(1000))
    bob.add_release("0.2.0")
    bob.want("0.2.0")
    assert bob.updater().once() == "updated"
    assert not left.exists()


def test_a_release_withdrawn_during_its_trial_is_judged_all_the_same(bob: Installation) -> None:
    """It runs already: it is proven or goes back, and what is wanted then is another update."""
    bob.add_release("0.2.0")
    bob.want("0.2.0")
    with pytest.MonkeyPatch.context() as patch:

        def withdraw(prefix: Prefix, nodes: list[str]) -> str:
            clear_update_request(bob.nodes()[0])
            return trial.restart_agents(prefix, nodes)

        patch.setattr(updater, "restart_agents", withdraw)
        assert bob.updater().once() == "updated"
    assert bob.is_settled("0.2.0")
    bob.add_release("0.1.9")
    bob.want("0.1.9", now=True)
    with pytest.raises(UpdateRefused, match="not newer"):
        bob.updater().once()
