"""souk-agent's commands in this process: what each refuses, and what Ctrl-C and an outage leave of it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from provider_agent.cli import app
from provider_agent.commands import known_folders, status_view, update
from provider_agent.config import DataFolder
from provider_agent.errors import NotEnrolled
from provider_agent.node import listing
from provider_agent.node import status as node_status
from provider_agent.packaging import prefix as packaging_prefix
from provider_agent.packaging.prefix import Prefix, Record
from provider_agent.protocol import REASON_CHARACTERS_MAX, Earnings
from provider_agent.system.agent_lock import hold_agent_lock
from provider_agent.updating import update_request
from provider_agent.updating.update_request import read_update_request
from tests.integration.provider_agent.conftest import Bob
from tests.integration.provider_agent.fake_server import FakeServer

AT = "2026-11-22T10:30:00+00:00"
BEFORE = Record(last={"outcome": "updated", "version": "0.1.0", "at": AT})


@pytest.fixture
def enrolled(bob: Bob) -> Bob:
    bob.enrol()
    return bob


@pytest.fixture
def installed(enrolled: Bob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prefix:
    """Bob's agent as if install.sh had made it."""
    made = Prefix(tmp_path / "prefix")
    made.root.mkdir()
    made.save(BEFORE)
    for module in (packaging_prefix, update_request, node_status):
        monkeypatch.setattr(module, "own_prefix", lambda: made)
    monkeypatch.setattr(update, "POLL_SECONDS", 0.01)
    return made


@pytest.fixture
def wanted(enrolled: Bob) -> Iterator[None]:
    """An agent of 0.1.0 runs, and its marketplace wants 0.2.0."""
    enrolled.folder.status.write_text(json.dumps({"version": "0.1.0", "wanted_version": "0.2.0", "pid": os.getpid()}))
    with hold_agent_lock(enrolled.folder.lock):
        yield


EXECUTOR = ("--executor", "process")


def run(bob: Bob, *words: str) -> Result:
    """One command to its end, or to Ctrl-C."""
    return CliRunner().invoke(app, [*words, "--data", str(bob.data)])


def press_ctrl_c(monkeypatch: pytest.MonkeyPatch, *, looks: int) -> None:
    """In place of the pause after so many looks."""
    pauses = 0

    def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == looks:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pause)


def test_watching_prints_a_line_a_change_until_ctrl_c(enrolled: Bob, monkeypatch: pytest.MonkeyPatch) -> None:
    press_ctrl_c(monkeypatch, looks=3)
    done = run(enrolled, "status", "--watch", "--json")
    assert done.exit_code == 130
    shown = json.loads(done.stdout)
    assert (shown["running"], shown["earnings"]["week_leases"]) == (False, 11)


def test_watching_goes_on_while_the_server_does_not_answer(
    enrolled: Bob, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fail_with["/earnings"] = 403
    press_ctrl_c(monkeypatch, looks=2)
    done = run(enrolled, "status", "--watch")
    assert done.exit_code == 130
    assert done.stdout.endswith("pay: the server does not answer\n")


def test_todays_pay_is_asked_again_only_after_a_while(enrolled: Bob, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = [], status_view._ask

    async def count(folder: DataFolder) -> Earnings:
        asked.append(folder)
        return await ask(folder)

    monkeypatch.setattr(status_view, "_ask", count)
    monkeypatch.setattr(status_view, "EARNINGS_SECONDS", 3600.0)
    pay = status_view.TodaysPay(enrolled.folder)
    assert pay.line() == pay.line() == "pay: $1.2500 today, $0.0003 open"
    assert len(asked) == 1
    monkeypatch.setattr(status_view, "EARNINGS_SECONDS", 0.0)
    pay.line()
    assert len(asked) == 2


def test_todays_pay_is_kept_while_the_server_does_not_answer(
    enrolled: Bob, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_view, "EARNINGS_SECONDS", 0.0)
    pay = status_view.TodaysPay(enrolled.folder)
    assert pay.line() == "pay: $1.2500 today, $0.0003 open"
    server.stop()
    assert pay.line() == "pay: $1.2500 today, $0.0003 open"


def test_a_reason_that_is_too_long_drains_nothing(enrolled: Bob, server: FakeServer) -> None:
    done = run(enrolled, "drain", "--reason", "x" * (REASON_CHARACTERS_MAX + 1))
    assert done.exit_code == 2
    assert f"may have {REASON_CHARACTERS_MAX} characters, not" in done.stderr
    assert server.drained == []


def test_a_node_without_an_open_offer_has_no_price_to_show(enrolled: Bob, server: FakeServer) -> None:
    server.price = None  # type: ignore[assignment]  # the protocol's own word for it
    assert run(enrolled, "price").stdout == "online; without an open offer\n"


def test_the_schedule_as_json_is_the_whole_of_it(enrolled: Bob) -> None:
    found = json.loads(run(enrolled, "schedule", "--hours", "mon 08:00-09:00", "--json").stdout)
    assert found["hours"] == [{"day": 0, "begins": 480, "ends": 540}]


def test_the_log_of_a_lease_that_is_not_here_is_refused(enrolled: Bob) -> None:
    done = run(enrolled, "logs", "--lease", str(uuid4()))
    assert done.exit_code == 2
    assert "is not here, or no longer" in done.stderr


def test_a_data_folder_of_nobody_is_not_enrolled(bob: Bob) -> None:
    for command in (["status"], ["earnings"], ["price"], ["logs"], ["update"], ["service", "unit"]):
        assert run(bob, *command).exit_code == 3, command


def test_the_unit_names_the_program_and_the_user(enrolled: Bob) -> None:
    done = run(enrolled, "service", "unit", "--program", "/opt/souk/bin/souk-agent", "--user", "bob")
    assert "\nUser=bob\n" in done.stdout
    assert f"/opt/souk/bin/souk-agent start --data {enrolled.data}" in done.stdout.replace('"', "")


def test_waiting_for_a_listing_ends_with_the_reason(enrolled: Bob) -> None:
    done = run(enrolled, "service", "wait", "--seconds", "0")
    assert done.exit_code == 9
    assert "the marketplace does not answer" in done.stdout
    assert "the agent has not reached the marketplace yet" in done.stderr
    enrolled.folder.status.write_text('{"last_error": "clock_skew"}')
    assert "the agent's last error: clock_skew" in run(enrolled, "service", "wait", "--seconds", "0").stderr


def test_a_wait_that_takes_long_names_where_to_look(enrolled: Bob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(listing, "REPEAT_SECONDS", 0.0)
    lines: list[str] = []

    def print_line(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(listing.wait_until_listed(enrolled.folder, seconds=60, print_line=print_line))
    assert "why so long" not in lines[0]
    assert "why so long: souk-agent logs, souk-agent doctor" in lines[1]


def test_update_takes_one_choice_at_a_time(enrolled: Bob) -> None:
    done = run(enrolled, "update", "--hold", "--auto")
    assert done.exit_code == 2
    assert "Give one of --check, --now, --hold and --auto" in done.stderr


def test_an_agent_of_a_checkout_is_not_updated_by_hand(enrolled: Bob) -> None:
    done = run(enrolled, "update", "--now")
    assert done.exit_code == 2
    assert "not installed by install.sh" in done.stderr
    assert json.loads(run(enrolled, "update", "--json").stdout)["updates"]["mode"] == "none"


def test_an_agent_that_does_not_run_knows_of_no_update(installed: Prefix, enrolled: Bob) -> None:
    assert run(enrolled, "update", "--now").stdout.startswith("The agent does not run: nothing is known.\n")


def test_a_version_that_runs_already_is_not_requested(installed: Prefix, enrolled: Bob, wanted: None) -> None:
    enrolled.folder.status.write_text('{"version": "0.2.0", "wanted_version": "0.2.0"}')
    assert run(enrolled, "update", "--now").stdout.startswith("There is nothing to update to.\n")
    assert read_update_request(enrolled.folder) is None


LAST = {"version": "0.2.0", "at": AT, "from_version": "0.1.0", "reason": "it did not check in"}
PROBLEM = {"reason": "The disk is full.", "at": AT}


@pytest.mark.parametrize(
    ("record", "status", "printed"),
    [
        (Record(last=LAST | {"outcome": "updated"}), 0, "last update: 0.2.0 updated"),
        (Record(last=LAST | {"outcome": "rolled back"}), 10, "Version 0.2.0 was rolled back: it did not check in"),
        (Record(last=BEFORE.last, problem=PROBLEM), 10, "Nothing was changed: The disk is full."),
    ],
    ids=["updated", "rolled back", "prevented"],
)
def test_an_update_by_hand_waits_for_its_outcome(
    installed: Prefix,
    enrolled: Bob,
    wanted: None,
    record: Record,
    status: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: installed.save(record))  # the updater acts while the command waits
    done = run(enrolled, "update", "--now")
    assert done.exit_code == status
    assert done.stdout.startswith("Updating to 0.2.0; programs go on.\n")
    assert printed in done.output
    assert read_update_request(enrolled.folder) is None, "the request is withdrawn"


def test_an_update_that_nobody_does_names_the_repair(
    installed: Prefix, enrolled: Bob, wanted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "NOW_SECONDS_MAX", 0.05)
    done = run(enrolled, "update", "--now")
    assert done.exit_code == 9
    assert "souk-agent service start repairs the updater" in done.stderr


def test_held_updates_are_shown_as_by_hand(installed: Prefix, enrolled: Bob) -> None:
    assert "(updates by hand)" in run(enrolled, "update", "--hold").stdout
    assert "(updates itself)" in run(enrolled, "update", "--auto").stdout


def enrol(bob: Bob, **options: Any) -> Result:
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return run(bob, "enrol", "--server", bob.server.url, "--token", bob.server.token, *EXECUTOR, *words)


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ({"cpu_cores": "0,one"}, "--cpu-cores wants numbers separated by commas"),
        ({"lend": "models"}, "--lend wants LABEL=FOLDER"),
        ({"lend": "models=/nowhere/at/all"}, "--lend wants LABEL=FOLDER with a folder that is there"),
        ({"price": "-1"}, "--offer"),
    ],
)
def test_an_enrolment_that_could_not_work_spends_no_token(
    bob: Bob, server: FakeServer, options: dict[str, str], printed: str
) -> None:
    done = enrol(bob, **options)
    assert done.exit_code == 2
    assert printed in done.stderr
    assert server.enrolled is None


def test_the_folder_with_the_nodes_keys_is_never_shared(bob: Bob, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "bob" / "inside").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "bob" / "inside"):
        done = enrol(bob, lend=f"models={folder}")
        assert done.exit_code == 2
        assert "would share the agent's own data" in done.stderr
    assert server.enrolled is None


def test_a_label_names_one_folder(bob: Bob, server: FakeServer, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    lent = ["--lend", f"models={tmp_path / 'a'}", "--lend", f"models={tmp_path / 'b'}"]
    done = run(bob, "enrol", "--server", server.url, "--token", server.token, *EXECUTOR, *lent)
    assert done.exit_code == 2
    assert "--lend names 'models' twice" in done.stderr
    assert server.enrolled is None


def test_retiring_asks_first_and_no_changes_nothing(enrolled: Bob, server: FakeServer) -> None:
    done = CliRunner().invoke(app, ["retire", "--data", str(enrolled.data)], input="n\n")
    assert done.exit_code == 1
    assert server.retired == []
    assert CliRunner().invoke(app, ["retire", "--data", str(enrolled.data)], input="y\n").exit_code == 0
    assert len(server.retired) == 1


def test_the_version_is_printed_without_a_command() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.stdout.strip()[0].isdigit()


def test_a_node_elsewhere_is_found_where_it_is_the_only_one(
    enrolled: Bob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nobodys = DataFolder(tmp_path / "usual")
    monkeypatch.setattr(known_folders, "default_data_folder", lambda: nobodys)
    assert known_folders.find_node(None, known=[enrolled.data]).root == enrolled.data
    assert f"the node in {enrolled.data}, the only one here" in capsys.readouterr().err
    with pytest.raises(NotEnrolled, match=f"Nodes of this computer: {enrolled.data}, {enrolled.data}. Name one"):
        known_folders.find_node(None, known=[enrolled.data] * 2)
    with pytest.raises(NotEnrolled, match="no other is known"):
        known_folders.find_node(tmp_path / "mistyped", known=[])
    with pytest.raises(NotEnrolled, match=f"mistyped holds no enrolled node. Nodes of this computer: {enrolled.data}"):
        known_folders.find_node(tmp_path / "mistyped", known=[enrolled.data])


def test_agents_that_run_are_known(enrolled: Bob) -> None:
    enrolled.start()
    assert enrolled.data in list(known_folders.known_folders())
    enrolled.stop()


def test_nodes_of_an_installation_are_known(installed: Prefix, enrolled: Bob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_folders, "own_prefix", lambda: installed)
    (installed.root / "nodes").write_text(f"{enrolled.data}\n/nowhere\n")
    assert enrolled.data in list(known_folders.known_folders())
    assert Path("/nowhere") not in list(known_folders.known_folders())
