"""install.sh for real: an environment is built, the node enrols, is repaired, and is removed without a trace.

As root the agent gets a user of its own; an ordinary user installs into their own folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from pytest_django import Settings

from marketplace.nodes.models import Node
from marketplace.nodes.releases import publishing
from marketplace.portal.install.wheel import build_wheel
from tests.integration.portal.conftest import IS_ROOT, Computer, issue_token, make_computer
from tests.wheels import rebuild_wheel

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800), pytest.mark.slow]
AGENT_USER = "souk-test-agent"
QUICK = ("--executor", "process", "--no-start", "--device-kind", "cpu")


@pytest.fixture(scope="module")
def shared() -> Iterator[Computer]:
    """A computer of several nodes: the first test installs, the others find it."""
    made = make_computer()
    made.options = ["--prefix", str(made.root / "prefix"), *(["--user", AGENT_USER] if IS_ROOT else [])]
    yield made
    if IS_ROOT and has_user(AGENT_USER):
        subprocess.run(["userdel", AGENT_USER], check=True)
    shutil.rmtree(made.root, ignore_errors=True)


def test_the_first_line_makes_a_node_that_another_repairs(script: str, token: str, shared: Computer) -> None:
    node = ("--data", str(shared.root / "first"), "--price", "1.25", "--region", "eu-west", "--name", "bobs-first")
    done = shared.run(script, "--token", token, *node, *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    made = Node.objects.get()
    assert (made.name, made.region, made.offers.get().price_usd_micros_per_device_hour) == (
        "bobs-first",
        "eu-west",
        1_250_000,
    )
    keys = (shared.root / "first" / "transport.key").read_bytes()
    if IS_ROOT:
        assert (shared.root / "first").stat().st_uid == pwd.getpwnam(AGENT_USER).pw_uid
        assert (shared.root / "prefix" / "current" / "bin" / "souk-agent").stat().st_uid == 0, "not its own to change"
    assert token not in done.stdout + done.stderr

    again = shared.run(script, *node, *QUICK)
    assert again.returncode == 0, again.stderr
    assert "is there already, and whole" in again.stdout
    assert "keeps its identity" in again.stdout

    current = (shared.root / "prefix" / "current").resolve()
    (current / ".complete").unlink()
    (current / "bin" / "souk-agent").unlink()
    repaired = shared.run(script, *node, *QUICK)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert (current / "bin" / "souk-agent").exists()
    assert (shared.root / "first" / "transport.key").read_bytes() == keys
    assert Node.objects.get() == made


def test_a_used_token_is_a_sentence_and_a_new_one_goes_on(script: str, token: str, shared: Computer) -> None:
    node = ("--data", str(shared.root / "second"))
    Node.objects.all().delete()
    assert shared.run(script, "--token", token, *node, *QUICK).returncode == 0
    refused = shared.run(script, "--token", token, "--data", str(shared.root / "third"), *QUICK)
    assert refused.returncode == 4
    assert "unknown, used or expired" in refused.stdout
    assert "A new one: souk provider add-node" in refused.stderr
    done = shared.run(script, "--data", str(shared.root / "third"), *QUICK, SOUK_ENROL_TOKEN=issue_token())
    assert done.returncode == 0, done.stderr


def test_a_name_that_cannot_be_is_a_sentence(script: str, token: str, shared: Computer) -> None:
    done = shared.run(script, "--token", token, "--data", str(shared.root / "named"), "--name", "$(id); rm", *QUICK)
    assert done.returncode == 2
    assert "name: String should match pattern" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.skipif(not IS_ROOT, reason="only root runs agents of others")
def test_a_repaired_node_keeps_whom_it_runs_as_until_another_is_asked_for(
    script: str, token: str, shared: Computer
) -> None:
    plain = replace(shared, options=["--prefix", str(shared.root / "prefix")])
    data = shared.root / "kept"
    node = ("--data", str(data), *QUICK)
    assert shared.run(script, "--token", token, *node).returncode == 0
    # What a job left belongs to its container's user, and stays so.
    (data / "leases" / "old").mkdir()
    shutil.chown(data / "leases" / "old", AGENT_USER)
    job = data / "leases" / "old" / "result"
    job.touch()
    os.chown(job, 10001, 10001)
    before = owners(data)
    assert before["config.json"] == AGENT_USER
    for options, user in (
        ((), AGENT_USER),
        (("--user", "root"), "root"),
        ((), "root"),
        (("--user", AGENT_USER), AGENT_USER),
    ):
        done = plain.run(script, *node, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "keeps its identity" in done.stdout
        found = owners(data)
        assert {found.pop("leases/old/result"), *found.values()} == {"10001", user}, found
    assert owners(data).keys() == before.keys()


@pytest.mark.skipif(not IS_ROOT, reason="only root runs agents of others")
def test_the_one_who_runs_the_agent_is_not_changed_while_programs_run(script: str, shared: Computer) -> None:
    data, program = shared.root / "kept", (shared.root / "prefix" / "current" / "bin" / "souk-agent").resolve()
    real = program.read_text()
    try:
        program.write_text('#!/bin/sh\n[ "$1" = status ] && echo \'{"leases": [{"state": "running"}]}\'\n')
        before = owners(data)
        done = shared.run(script, "--data", str(data), *QUICK, "--user", "root")
        assert done.returncode == 6
        assert f"looked after by {AGENT_USER}. Drain the node first" in done.stderr
        assert owners(data) == before
    finally:
        program.write_text(real)


def owners(data: Path) -> dict[str, str]:
    """Whom each file belongs to."""
    found = {}
    for path in [data, *data.rglob("*")]:
        uid = path.lstat().st_uid
        found[str(path.relative_to(data))] = str(uid) if uid == 10001 else pwd.getpwuid(uid).pw_name
    return found


def test_a_computer_that_is_ahead_of_new_nodes_keeps_its_version(
    market: str, token: str, shared: Computer, settings: Settings, tmp_path: Path
) -> None:
    before = (shared.root / "prefix" / "current").resolve()
    older = build_wheel(tmp_path)
    with older.open("ab") as changed:  # another file, so that it is not "there already"
        changed.write(b"\0")
    settings.SOUK_AGENT_WHEEL = str(older.rename(older.with_name("gpusouk-0.0.9-py3-none-any.whl")))
    script = httpx.get(f"{market}/install.sh").text
    done = shared.run(script, "--token", token, "--data", str(shared.root / "old"), *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "version 0.1.0 is there, newer than 0.0.9, which new nodes install; it stays" in done.stdout
    assert (shared.root / "prefix" / "current").resolve() == before
    assert (shared.root / "old" / "config.json").exists(), "and the node is enrolled"


@pytest.mark.soak
def test_a_broken_agent_ahead_of_new_nodes_is_repaired_with_its_own_version(
    market: str, shared: Computer, wheel: Path, settings: Settings, tmp_path: Path
) -> None:
    node = ("--data", str(shared.root / "first"))
    settings.SOUK_DATA = str(tmp_path / "data")
    ahead = rebuild_wheel(wheel, tmp_path / "data" / "dist", "0.9.0")
    settings.SOUK_AGENT_WHEEL = str(ahead)
    done = shared.run(httpx.get(f"{market}/install.sh").text, *node, *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    settings.SOUK_AGENT_WHEEL = str(wheel)
    publishing.publish(version="0.9.0", wheel=ahead.name, sha256=hashlib.sha256(ahead.read_bytes()).hexdigest())
    install_script = httpx.get(f"{market}/install.sh").text
    assert "\nVERSION=0.1.0\n" in install_script
    current = shared.root / "prefix" / "current"
    (current / "bin" / "souk-agent").write_text("#!/bin/sh\nexit 1\n")
    repaired = shared.run(install_script, *node, *QUICK)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert "version 0.9.0 is there and does not run; fetching it again" in repaired.stdout
    version = subprocess.run([current / "bin" / "souk-agent", "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == "0.9.0\n"


def test_uninstalling_one_keeps_the_others_and_the_last_leaves_nothing(script: str, shared: Computer) -> None:
    names = [path for path in shared.root.iterdir() if (path / "config.json").exists()]
    if not names:
        pytest.fail("the tests before this one install nodes")
    for number, data in enumerate(names, 1):
        done = shared.run(script, "--uninstall", "--data", str(data), "--force")
        assert done.returncode == 0, done.stdout + done.stderr
        assert not data.exists()
        assert (shared.root / "prefix").exists() is (number < len(names))
    for leftover in ("named", "old"):  # of enrolments that were refused
        shared.run(script, "--uninstall", "--data", str(shared.root / leftover), "--force")
    assert shared.files() == []
    assert not (IS_ROOT and has_user(AGENT_USER))


def test_an_ordinary_user_installs_below_home_and_leaves_nothing(script: str, token: str) -> None:
    computer = make_computer("nobody" if IS_ROOT else "")
    try:
        done = computer.run(script, *QUICK, SOUK_ENROL_TOKEN=token)
        assert done.returncode == 0, done.stdout + done.stderr
        node = Node.objects.get()
        data = computer.home / ".souk-agent"
        assert json.loads((data / "config.json").read_text())["node_id"] == str(node.pk)
        link = (computer.home / ".local/bin/souk-agent").readlink()
        assert link.is_relative_to(computer.home / ".local/share")
        removed = computer.run(script, "--uninstall")
        assert removed.returncode == 0, removed.stdout + removed.stderr
        assert "Retired" in removed.stdout
        node.refresh_from_db()
        assert node.state == "retired"
        left = [name for name in computer.files() if (computer.root / name).is_file() or "souk" in name]
        assert left == []
    finally:
        shutil.rmtree(computer.root, ignore_errors=True)


def test_running_programs_keep_a_node_from_being_uninstalled(script: str, computer: Computer, tmp_path: Path) -> None:
    prefix, data = computer.root / "prefix", computer.root / "data"
    (prefix / "current" / "bin").mkdir(parents=True)
    data.mkdir()
    (data / "config.json").write_text("{}")
    program = prefix / "current" / "bin" / "souk-agent"
    program.write_text('#!/bin/sh\n[ "$1" = status ] && echo \'{"leases": [{"state": "running"}]}\'\n')
    program.chmod(0o755)
    before = computer.files()
    done = computer.run(script, "--uninstall", "--prefix", str(prefix), "--data", str(data))
    assert done.returncode == 6
    assert "Drain the node first" in done.stderr
    assert computer.files() == before


def has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
