"""The promises of executors/base.py, kept by every executor with real programs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from provider_agent.errors import ImageUnavailable
from provider_agent.executors import base
from provider_agent.executors.base import Exit, Handle, LaunchSpec, log_path
from provider_agent.executors.docker import DockerExecutor
from provider_agent.executors.process import ProcessExecutor
from tests.contracts.executors.conftest import Setup

SECONDS_MAX = 60.0
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


class Started:
    """One program under one executor."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup, self.executor = setup, setup.executor
        self.lease_id = uuid4()
        self.folder = folder / str(self.lease_id)
        (self.folder / "work").mkdir(parents=True)
        self.handle: Handle = {}

    def start(self, code: str, **changes: Any) -> Started:
        """Start a few lines of Python."""
        values: dict[str, Any] = {
            "lease_id": self.lease_id,
            "folder": self.folder,
            "argv": [self.setup.python, "-c", code],
            "env": {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"},
            "image": self.setup.image,
        }
        self.handle = asyncio.run(self.executor.start(LaunchSpec(**values | changes)))
        return self

    def poll(self) -> Exit | None:
        return asyncio.run(self.executor.poll(self.handle))

    def wait(self) -> Exit:
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until:
            ended = self.poll()
            if ended is not None:
                return ended
            time.sleep(0.05)
        raise AssertionError(f"still runs; its log: {self.log()[-500:]}")

    def wait_for_log(self, text: str) -> None:
        until = time.monotonic() + SECONDS_MAX
        while text not in self.log():
            assert time.monotonic() < until, self.log()
            self.poll()
            time.sleep(0.05)

    def log(self) -> str:
        path = log_path(self.folder)
        return path.read_text(errors="replace") if path.exists() else ""

    def processes(self) -> list[int]:
        """Whatever of it is left on this computer."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(base.MARKER) == str(self.lease_id):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def program(setup: Setup, tmp_path: Path) -> Iterator[Started]:
    """A program to start; nothing of it is left after the test."""
    started = Started(setup, tmp_path)
    yield started
    if started.handle:
        asyncio.run(started.executor.kill(started.handle))
        asyncio.run(started.executor.cleanup(started.handle))
        asyncio.run(started.executor.cleanup(started.handle))  # repeating it changes nothing
    assert started.processes() == []


def test_success_is_exit_code_0_with_the_whole_log(program: Started) -> None:
    ended = program.start("import sys; print('out'); print('err', file=sys.stderr)").wait()
    assert (ended.code, ended.signal, ended.vanished) == (0, None, False)
    assert sorted(program.log().split()) == ["err", "out"]


def test_exit_code_is_the_programs_own(program: Started) -> None:
    assert program.start("raise SystemExit(75)").wait().code == 75


def test_running_program_has_no_exit(program: Started) -> None:
    program.start(SLEEP).wait_for_log("up")
    assert program.poll() is None


def test_program_works_in_its_work_folder(program: Started) -> None:
    program.start("import os; open('made', 'w').write(os.getcwd())").wait()
    seen = program.executor.seen_work(program.folder)
    assert (program.folder / "work" / "made").read_text() == seen


def test_files_in_the_work_folder_can_be_read_and_written(program: Started) -> None:
    (program.folder / "work" / "input").mkdir()
    (program.folder / "work" / "input" / "a").write_text("given")
    ended = program.start("text = open('input/a').read(); open('input/b', 'w').write(text + '!')").wait()
    assert ended.code == 0, program.log()
    assert (program.folder / "work" / "input" / "b").read_text() == "given!"


def test_stop_lets_the_program_leave_by_itself(program: Started) -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(75)); print('up'); time.sleep(600)"
    program.start(code).wait_for_log("up")
    asyncio.run(program.executor.stop(program.handle))
    assert program.wait().code == 75


def test_stopped_program_without_a_handler_ends_by_the_signal(program: Started) -> None:
    program.start(SLEEP).wait_for_log("up")
    asyncio.run(program.executor.stop(program.handle))
    assert program.wait().signal == 15


def test_kill_ends_a_program_that_ignores_stop(program: Started) -> None:
    program.start("import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(600)")
    program.wait_for_log("up")
    asyncio.run(program.executor.stop(program.handle))
    time.sleep(0.3)
    assert program.poll() is None
    asyncio.run(program.executor.kill(program.handle))
    assert program.wait().signal == 9


def test_kill_reaches_detached_children(program: Started) -> None:
    child = f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
    code = f"import subprocess, sys, time; {child}; time.sleep(600)"
    program.start(code).wait_for_log("up")
    asyncio.run(program.executor.kill(program.handle))
    program.wait()
    assert program.processes() == []


def test_detached_children_do_not_outlive_the_program(program: Started) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
    assert program.start(code).wait().code == 0
    assert program.processes() == []


def test_program_that_moves_to_a_new_process_each_moment_does_not_outlive_its_first(program: Started) -> None:
    code = """
import os, time
if os.fork():
    time.sleep(1)
    os._exit(0)
os.setsid()
until = time.monotonic() + 90
while time.monotonic() < until:
    open("moved", "w").close()
    if os.fork():
        os._exit(0)
"""
    assert program.start(code).wait().code == 0
    moved = program.folder / "work" / "moved"
    moved.unlink()
    time.sleep(0.5)
    assert not moved.exists()


def test_unknown_command_ends_with_127_and_says_so(program: Started) -> None:
    ended = program.start("", argv=["/no/such/program"]).wait()
    assert ended.code == 127
    assert "/no/such/program" in program.log()


def test_memory_limit_is_out_of_memory(program: Started) -> None:
    code = "import time; print('up'); held = bytearray(b'x') * (600 << 20); time.sleep(30)"
    ended = program.start(code, memory_mib_max=200).wait()
    assert ended.out_of_memory, ended
    assert ended.code != 0


def test_cores_are_pinned(program: Started) -> None:
    program.start("import os; print(sorted(os.sched_getaffinity(0)))", cores=[0]).wait()
    assert json.loads(program.log()) == [0]


def test_environment_is_only_what_was_given(program: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTS_OWN", "secret")
    program.start("import os; print(os.environ.get('AGENTS_OWN'), os.environ['MINE'])", env={"MINE": "1"}).wait()
    assert program.log() == "None 1\n"


def test_new_agent_adopts_a_running_program(program: Started) -> None:
    program.start(SLEEP).wait_for_log("up")
    program.executor = fresh(program)
    handle = asyncio.run(program.executor.adopt(program.lease_id, program.folder, program.handle))
    assert handle is not None
    program.handle = handle
    assert program.poll() is None
    asyncio.run(program.executor.stop(program.handle))
    assert program.wait().signal == 15


def test_new_agent_adopts_also_without_a_journaled_handle(program: Started) -> None:
    program.start("import time; print('up'); time.sleep(3); print('later'); raise SystemExit(4)").wait_for_log("up")
    program.executor = fresh(program)
    handle = asyncio.run(program.executor.adopt(program.lease_id, program.folder, None))
    assert handle is not None
    program.handle = handle
    assert program.wait().code == 4
    assert program.log() == "up\nlater\n"


def test_exit_without_an_agent_is_known_to_the_next(program: Started) -> None:
    program.start("raise SystemExit(9)").wait()
    program.executor = fresh(program)
    handle = asyncio.run(program.executor.adopt(program.lease_id, program.folder, program.handle))
    assert handle is not None
    program.handle = handle
    assert program.wait().code == 9


def test_program_that_never_started_is_not_adopted(program: Started) -> None:
    assert asyncio.run(program.executor.adopt(program.lease_id, program.folder, None)) is None


def test_program_without_a_trace_has_vanished(program: Started) -> None:
    program.start(SLEEP).wait_for_log("up")
    if isinstance(program.executor, ProcessExecutor):
        for pid in program.processes():
            psutil.Process(pid).kill()
    else:
        asyncio.run(program.executor.cleanup(program.handle))
    assert program.wait().vanished


def test_log_has_a_cap_and_says_so(program: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LOG_BYTES_MAX", 10_000)
    program.start("for n in range(5000): print('line', n)").wait()
    assert program.log().endswith(base.LOG_CAP_LINE)
    assert log_path(program.folder).stat().st_size <= 10_000


def test_secrets_are_in_no_file_of_the_lease_once_started(program: Started) -> None:
    program.start(SLEEP, env={"TOKEN": "hunter2hunter2"}).wait_for_log("up")
    for path in program.folder.rglob("*"):
        if path.is_file():
            assert b"hunter2hunter2" not in path.read_bytes()


# --- what the process executor promises beyond that


processes_only = pytest.mark.parametrize("setup", ["process"], indirect=True)


@processes_only
def test_program_ends_by_itself_when_its_lease_runs_out_without_an_agent(program: Started) -> None:
    program.start(SLEEP).wait_for_log("up")
    asyncio.run(program.executor.extend(program.handle, 1.0))
    ended = program.wait()
    assert ended.lease_expired
    assert program.processes() == []


@processes_only
def test_extended_lease_lets_the_program_go_on(program: Started) -> None:
    program.start("import time; print('up'); time.sleep(5); print('done')").wait_for_log("up")
    asyncio.run(program.executor.extend(program.handle, 3.0))  # the next one must come before that
    asyncio.run(program.executor.extend(program.handle, 60.0))
    assert program.wait().code == 0


# --- what containers promise beyond that


containers_only = pytest.mark.parametrize("setup", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True)


@containers_only
def test_container_is_unprivileged(program: Started) -> None:
    code = (
        "import os\n"
        "fields = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())\n"
        "print(os.getuid(), fields['CapEff'].strip(), fields['CapBnd'].strip(), fields['NoNewPrivs'].strip())\n"
    )
    program.start(code).wait()
    assert program.log().split() == ["10001", "0" * 16, "0" * 16, "1"]


@containers_only
def test_container_cannot_write_outside_its_work_folder_and_tmp(program: Started) -> None:
    code = (
        "for path in ('/etc/x', '/usr/x', '/tmp/x', '/souk/x'):\n"
        "    try: open(path, 'w').write('x'); print(path, 'written')\n"
        "    except OSError as error: print(path, error.errno)\n"
    )
    program.start(code).wait()
    assert program.log().split("\n")[:4] == ["/etc/x 30", "/usr/x 30", "/tmp/x written", "/souk/x written"]


@containers_only
def test_container_has_no_network(program: Started) -> None:
    program.start("import os; print(sorted(os.listdir('/sys/class/net')))").wait()
    assert "lo" in program.log()
    assert "eth" not in program.log()


@containers_only
def test_container_sees_nothing_of_its_lease_but_the_work_folder(program: Started) -> None:
    program.start("import os; print(sorted(os.listdir('/souk')), os.path.exists('/souk/../log'))").wait()
    assert program.log() == "[] False\n"


@containers_only
def test_fork_bomb_meets_its_limit(program: Started) -> None:
    code = (
        "import os, time\n"
        "count = 0\n"
        "try:\n"
        "    while count < 5000:\n"
        "        if os.fork() == 0: time.sleep(60)\n"
        "        count += 1\n"
        "except OSError: print('limited', count < 1024)\n"
        "os._exit(0)\n"
    )
    program.start(code).wait_for_log("limited True")


@containers_only
def test_unknown_image_is_named(program: Started) -> None:
    with pytest.raises(ImageUnavailable):
        program.start("", image="127.0.0.1:9/souk-test/nowhere:1")


def fresh(program: Started) -> ProcessExecutor | DockerExecutor:
    """The executor as a new agent makes it, without the old one's memory."""
    asyncio.run(program.executor.close())
    if isinstance(program.executor, DockerExecutor):
        return DockerExecutor(engine_url=program.executor.engine_url, isolation="runc")
    return ProcessExecutor(program.setup.python)
