"""What a job file wants before its command: setup lines, and requirements, each attempt's own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.lease.dependencies.launcher import MAKE_ENVIRONMENT, Launch, Step, launch_command
from provider_agent.lease.dependencies.requirements import install_line
from provider_agent.protocol import AttemptState, Program, Reason
from tests.fakes.wheels import make_wheel
from tests.integration.provider_agent.conftest import Bob, eventually, processes_of
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

USES_IT = "import souk_toy, torch, sys; print('toy', souk_toy.__file__, torch.__version__, sys.prefix)"
WAITS = "touch begun; until test -e go; do sleep 0.1; done"

# Builds the wheel that lies beside it, once the work folder has a file `go`: pip runs it while it installs.
WAITING_BACKEND = """
import pathlib, shutil, time
WORK, WHEEL = pathlib.Path(__file__).parents[2], "souk_toy-1.0-py3-none-any.whl"
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    (WORK / "begun").touch()
    while not (WORK / "go").exists():
        time.sleep(0.1)
    shutil.copy(pathlib.Path(__file__).with_name(WHEEL), wheel_directory)
    return WHEEL
"""
OF_BACKEND = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start()
    return bob


def give(
    bob: Bob, server: FakeServer, command: list[str], *, setup: list[str] | None = None, **changes: object
) -> Lease:
    return server.give(bob.assignment(program=Program(command=command, setup=setup), **changes))


def give_files(
    bob: Bob, server: FakeServer, files: dict[str, bytes], *, setup: list[str] | None = None, **changes: object
) -> Lease:
    """A lease that uses the toy, with a file of requirements among these files."""
    input_id = uuid4()
    server.downloads[input_id] = files
    program = Program(command=["python", "-c", USES_IT], setup=setup, requirements="requirements.txt")
    return server.give(bob.assignment(program=program, input_artifact_id=input_id, **changes))


def work_of(bob: Bob, lease: Lease) -> Path:
    return bob.folder.lease(lease.assignment.lease_id) / "work"


def output_names(server: FakeServer) -> list[str]:
    """Of all artifacts: the names of their files."""
    return sorted(file.path for artifact in server.artifacts.values() for file in artifact.begin.files)


class Launched:
    """A launcher without an agent, as a container's init has it below itself."""

    def __init__(self, folder: Path, launch: Launch) -> None:
        self.folder, self.events = folder, folder / "events.jsonl"
        self.log = folder / "log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                launch_command(launch, ["touch", "started"]),
                cwd=folder,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "SOUK_EVENTS": str(self.events)},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def stop_alone(self) -> int:
        """SIGTERM to the launcher and to nothing that it runs; its exit status."""
        eventually((self.folder / "begun").exists, "the first step")
        self.process.terminate()
        return self.process.wait(60)


def waiting_python(folder: Path) -> str:
    """An interpreter that makes no environment, and does not end by itself."""
    path = folder / "python"
    path.write_text("#!/bin/sh\ntouch begun\nsleep 600\n")
    path.chmod(0o755)
    return str(path)


def test_setup_lines_run_before_the_command_and_each_is_in_the_log(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, ["cat", "made"], setup=["echo 'of the setup' > made", "cat <<X >> made\nit's\nX"])
    assert until_ended(lease).reason is Reason.COMPLETED, lease.logs
    log = re.sub(r"after \d+ s", "after N s", lease.logs.decode())
    assert (
        "[souk] setup 1 of 2: echo 'of the setup' > made\n[souk] setup 1 of 2 ended with exit code 0 after N s\n"
        "[souk] setup 2 of 2: cat <<X >> made\\nit's\\nX\n[souk] setup 2 of 2 ended with exit code 0 after N s\n"
        "of the setup\nit's\n"
    ) in log
    assert output_names(server) == ["made"], "what the setup made is output, too"


def test_a_setup_line_that_fails_is_the_customers_fault_and_is_named(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, ["echo", "never"], setup=["true", 'echo "no" >&2; exit 7', "true"])
    report = until_ended(lease)
    assert (report.reason, report.exit_code) == (Reason.EXIT_NONZERO, 7)
    assert report.message == 'setup 2 of 3 ended with exit code 7: echo "no" >&2; exit 7'
    assert b'[souk] setup 2 of 3: echo "no" >&2; exit 7\nno\n' in lease.logs
    assert b"setup 3" not in lease.logs


def test_a_stop_ends_the_setup_and_the_command_never_starts(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, ["echo", "never started"], setup=["echo ready; sleep 600"], stop_grace_seconds=60)
    eventually(lambda: b"\nready" in lease.logs, "the setup")
    server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    assert until_ended(lease).reason is Reason.CANCELLED_BY_CUSTOMER
    assert b"ended with exit code 143" in lease.logs
    assert b"never started" not in lease.logs
    assert processes_of(lease.assignment.lease_id) == []


@pytest.mark.parametrize("line", ["touch begun; sleep 600", "trap 'exit 0' TERM; touch begun; sleep 600 & wait"])
def test_a_stop_of_the_launcher_alone_starts_nothing_more(tmp_path: Path, line: str) -> None:
    steps = [Step("setup 1 of 2", line), Step("setup 2 of 2", "touch second")]
    launched = Launched(tmp_path, Launch(steps=steps, environment=str(tmp_path / ".environment")))
    assert launched.stop_alone() == 143
    assert not (tmp_path / "second").exists()
    assert not (tmp_path / "started").exists()
    assert not launched.events.exists(), "nothing has failed"


def test_a_stop_while_the_environment_is_made_starts_nothing(tmp_path: Path) -> None:
    launch = Launch(
        steps=[Step("requirements", "touch second")],
        environment=str(tmp_path / ".environment"),
        python=waiting_python(tmp_path),
        needs_python=True,
    )
    launched = Launched(tmp_path, launch)
    assert launched.stop_alone() == 143
    assert not (tmp_path / "second").exists()
    assert not (tmp_path / "started").exists()
    assert launched.log.read_bytes() == b""
    assert not launched.events.exists()


@pytest.mark.parametrize("slow", ["setup 1 of 1", "the Python environment"])
def test_what_takes_longer_than_its_time_is_ended_and_named(tmp_path: Path, slow: str) -> None:
    python = sys.executable if slow.startswith("setup") else waiting_python(tmp_path)
    steps = [Step("setup 1 of 1", 'echo "a"; sleep 600')]
    launched = Launched(
        tmp_path, Launch(steps=steps, environment=str(tmp_path / ".environment"), python=python, seconds_max=20)
    )
    assert launched.process.wait(120) == 124
    event = json.loads(launched.events.read_text())
    assert event["event"] == "failed"
    assert event["message"].startswith(f"{slow} took too long: everything before the command has 20 s")
    assert not (tmp_path / "started").exists()


def test_pip_in_a_setup_line_installs_for_this_attempt_alone(running: Bob, server: FakeServer) -> None:
    input_id = uuid4()
    name, wheel = make_wheel("souk_toy", "1.0", "def main(): pass\n")
    server.downloads[input_id] = {name: wheel}
    command = ["python", "-c", USES_IT]
    lease = give(running, server, command, setup=[f"pip install --no-index input/{name}"], input_artifact_id=input_id)
    assert until_ended(lease).reason is Reason.COMPLETED, lease.logs
    assert b"/work/.environment/lib/" in lease.logs
    after = give(running, server, command)
    assert until_ended(after).reason is Reason.EXIT_NONZERO


@pytest.mark.parametrize("outputs", [pytest.param(None, marks=pytest.mark.soak), ["*"]])
def test_requirements_come_from_wheels_and_are_no_output(
    running: Bob, server: FakeServer, outputs: list[str] | None
) -> None:
    name, wheel = make_wheel("souk_toy", "1.0", "def main(): print('ran the toy')\n")
    files = {"requirements.txt": b"souk-toy==1.0\n", f"wheels/{name}": wheel}
    lease = give_files(running, server, files, setup=["souk_toy", "touch made"], outputs=outputs)
    report = until_ended(lease)
    assert report.reason is Reason.COMPLETED, lease.logs
    assert report.billable_ms > 500, "installing is the customer's time"
    installed, ran, used = (lease.logs.find(each) for each in (b"requirements ended", b"\nran the toy", b"\ntoy /"))
    assert 0 < installed < ran < used
    assert b"/work/.environment/lib/" in lease.logs
    assert output_names(server) == ["made"]


def test_requirements_that_cannot_be_installed_are_named(running: Bob, server: FakeServer) -> None:
    lease = give_files(running, server, {"requirements.txt": b"souk-toy==9\n", "wheels/README": b"none"})
    report = until_ended(lease)
    assert report.reason is Reason.EXIT_NONZERO
    assert report.message.startswith("requirements ended with exit code 1: ")
    assert b"No matching distribution found for souk-toy==9" in lease.logs


def locked_project(folder: Path, version: str) -> None:
    """A project that needs the toy, and its lock, made by uv; the toy's wheel lies beside them."""
    name, wheel = make_wheel("souk_toy", version, "def main(): print('ran the toy')\n")
    folder.mkdir(parents=True)
    (folder / name).write_bytes(wheel)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = ["souk-toy"]\n'
        f'[tool.uv.sources]\nsouk-toy = {{path = "{name}"}}\n'
    )
    uv = [sys.executable, "-m", "uv", "lock", "--offline", "--no-cache", "--project", str(folder)]
    subprocess.run(uv, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_lock_installs_the_packages_that_it_names_by_their_hashes(tmp_path: Path, is_changed: bool) -> None:
    pytest.importorskip("uv")
    locked_project(tmp_path / "input" / "a", "1.0")
    if is_changed:  # since the lock was made
        name, wheel = make_wheel("souk_toy", "1.0", "def main(): print('another toy')\n")
        (tmp_path / "input" / "a" / name).write_bytes(wheel)
    steps = [Step("requirements", install_line("a/uv.lock", tmp_path, str(tmp_path))), Step("setup 1 of 1", "souk_toy")]
    environment = str(tmp_path / ".environment")
    launched = Launched(
        tmp_path, Launch(steps=steps, environment=environment, python=sys.executable, needs_python=True)
    )
    code = launched.process.wait(120)
    log = launched.log.read_text()
    if is_changed:
        assert code != 0 and "THESE PACKAGES DO NOT MATCH THE HASHES" in log, log
        assert json.loads(launched.events.read_text())["message"].startswith("requirements ended with exit code 1")
    else:
        assert code == 0 and "\nran the toy\n" in log, log
        assert not (tmp_path / "input" / "a" / ".venv").exists()


def test_a_lock_that_is_none_is_the_requirements_fault(tmp_path: Path) -> None:
    pytest.importorskip("uv")
    locked_project(tmp_path / "input", "1.0")
    (tmp_path / "input" / "uv.lock").write_text("version = 1\n[[package]\n")
    steps = [Step("requirements", install_line("uv.lock", tmp_path, str(tmp_path)))]
    launch = Launch(steps=steps, environment=str(tmp_path / ".environment"), python=sys.executable, needs_python=True)
    launched = Launched(tmp_path, launch)
    assert launched.process.wait(120) != 0
    assert "uv.lock" in launched.log.read_text()
    assert json.loads(launched.events.read_text())["message"].startswith("requirements ended with exit code")


def test_pip_finds_what_an_images_pythonpath_names_but_nothing_of_the_job(tmp_path: Path) -> None:
    libs, work = tmp_path / "libs", tmp_path / "work"
    for folder, name in ((libs, "of_the_image"), (work / "input", "of_the_job")):
        folder.mkdir(parents=True)
        (folder / f"{name}.py").touch()
    paths = os.pathsep.join(map(str, (libs, work / "input", "")))
    environment = work / ".environment"
    words = [sys.executable, "-c", MAKE_ENVIRONMENT, str(environment)]
    subprocess.run(words, cwd=work, env={"PYTHONPATH": paths}, check=True)
    shows = (
        "import importlib.util, sys; import pip, of_the_image\n"
        "print(importlib.util.find_spec('of_the_job'), [each for each in sys.path if each.startswith(sys.argv[1])])"
    )
    isolated = [str(environment / "bin" / "python"), "-I", "-c", shows, str(tmp_path)]
    found = subprocess.run(isolated, cwd=work, capture_output=True, text=True, check=True).stdout
    site = next(environment.glob("lib/python*/site-packages"))
    assert found == f"None {[str(site), str(libs)]}\n"


def test_an_agent_killed_during_the_setup_finds_it_again(running: Bob, server: FakeServer) -> None:
    lease = give(running, server, ["echo", "the command"], setup=[WAITS, "echo second"])
    eventually((work_of(running, lease) / "begun").exists, "the setup")
    running.stop(signal.SIGKILL)
    running.start()
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).state is AttemptState.SUCCEEDED, lease.logs
    assert lease.logs.count(b"[souk] setup 1 of 2: ") == 1, "it went on, and did not begin anew"
    assert b"\nsecond\n" in lease.logs
    assert b"\nthe command\n" in lease.logs


def test_an_agent_killed_while_pip_installs_finds_it_again(running: Bob, server: FakeServer) -> None:
    name, wheel = make_wheel("souk_toy", "1.0", "def main(): pass\n")
    files = {
        f"toy/{name}": wheel,
        "toy/backend.py": WAITING_BACKEND.encode(),
        "toy/pyproject.toml": OF_BACKEND.encode(),
    }
    lease = give_files(running, server, files | {"requirements.txt": b"./input/toy\n", "wheels/README": b"none"})
    eventually((work_of(running, lease) / "begun").exists, "the installation")
    running.stop(signal.SIGKILL)
    running.start()
    running.let_go(lease.assignment.lease_id)
    assert until_ended(lease).state is AttemptState.SUCCEEDED, lease.logs
    assert lease.logs.count(b"[souk] requirements: ") == 1, "it went on, and did not begin anew"
    assert b"\ntoy /" in lease.logs
