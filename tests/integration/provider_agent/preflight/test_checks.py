"""What preflight finds on computers of many kinds. Each FIX names what fixes it."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from provider_agent.preflight import machine, network
from provider_agent.preflight.abilities import DesiredSettings
from provider_agent.preflight.containers import check_driver, check_engine, check_toolkit, find_vendors
from provider_agent.preflight.finding import version_of
from provider_agent.preflight.interpreter import check_interpreter

FLOORS = {"docker": "20.10", "nvidia-container-toolkit": "1.17.8", "nvidia-driver": "525.60"}


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.17.8", (1, 17, 8)), ("v1.17.8-1", (1, 17, 8)), ("20.10.24+dfsg1", (20, 10, 24)), ("unknown", ()), ("", ())],
)
def test_versions_are_compared_by_their_numbers(text: str, version: tuple[int, ...]) -> None:
    assert version_of(text) == version


@pytest.mark.parametrize(
    ("version", "verdict"), [("1.16.1", "FIX"), ("1.17.7", "FIX"), ("1.17.8", "PASS"), ("1.18.0", "PASS")]
)
def test_a_toolkit_with_a_known_escape_is_to_be_replaced(tmp_path: Path, version: str, verdict: str) -> None:
    tool = tmp_path / "nvidia-ctk"
    tool.write_text(f"#!/bin/sh\necho NVIDIA Container Toolkit CLI version {version}\necho commit: 0f1e2d\n")
    tool.chmod(0o755)
    found = check_toolkit(FLOORS, "docker", has_gpu=True, program=str(tool))
    assert found.verdict == verdict
    assert ("--only-upgrade nvidia-container-toolkit" in found.fix) is (verdict == "FIX")


def test_the_floor_of_the_toolkit_is_the_marketplaces(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-ctk"
    tool.write_text("#!/bin/sh\necho version 1.17.8\n")
    tool.chmod(0o755)
    higher = {**FLOORS, "nvidia-container-toolkit": "1.18.2"}
    assert check_toolkit(higher, "docker", has_gpu=True, program=str(tool)).verdict == "FIX"


def test_a_missing_toolkit_is_to_be_installed_only_where_there_is_a_gpu() -> None:
    assert check_toolkit(FLOORS, "docker", has_gpu=True, program="no-such-tool").verdict == "FIX"
    assert check_toolkit(FLOORS, "docker", has_gpu=False, program="no-such-tool").verdict == "SKIP"
    assert check_toolkit(FLOORS, "process", has_gpu=True, program="no-such-tool").verdict == "SKIP"


def test_cards_are_seen_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    for number, (vendor, kind) in enumerate((("0x10de", "0x030200"), ("0x1002", "0x030000"), ("0x8086", "0x020000"))):
        card = tmp_path / str(number)
        card.mkdir()
        (card / "vendor").write_text(f"{vendor}\n")
        (card / "class").write_text(f"{kind}\n")
    assert find_vendors(tmp_path) == {"NVIDIA", "AMD"}, "Intel's is a network card"


@pytest.mark.parametrize(
    ("vendors", "kind", "driver", "verdict", "finding"),
    [
        ({"NVIDIA"}, "auto", None, "FIX", "its driver is not loaded"),
        ({"NVIDIA"}, "auto", "550.54.14", "PASS", "NVIDIA 550.54.14"),
        ({"NVIDIA"}, "auto", "470.57.02", "FIX", "525.60 is the least"),
        ({"AMD"}, "auto", None, "SKIP", "AMD graphics cannot be rented out yet"),
        ({"AMD"}, "gpu", None, "FIX", "AMD graphics cannot be rented out yet"),
        (set(), "auto", None, "SKIP", "shares of its processor"),
        ({"NVIDIA"}, "cpu", None, "SKIP", "--device-kind cpu"),
    ],
)
def test_each_kind_of_graphics_is_a_sentence(
    tmp_path: Path, vendors: set[str], kind: str, driver: str | None, verdict: str, finding: str
) -> None:
    version_file = tmp_path / "version"
    if driver:
        version_file.write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Feb 22\nGCC version: 12\n"
        )
    found = check_driver(FLOORS, kind, vendors=vendors, version_file=version_file)
    assert (found.verdict, finding in found.found) == (verdict, True), found
    assert bool(found.fix) is (verdict == "FIX")


@pytest.mark.parametrize(("version", "verdict"), [("19.03.5", "FIX"), ("20.10.24+dfsg1", "PASS"), ("29.4.2", "PASS")])
def test_the_engine_is_asked_for_its_version(tmp_path: Path, version: str, verdict: str) -> None:
    with engine(tmp_path / "docker.sock", {"Version": version, "Components": [{"Name": "runc", "Version": "1.1.5"}]}):
        found = check_engine(FLOORS, "docker", url=f"unix://{tmp_path}/docker.sock")
    assert found.verdict == verdict
    assert version in found.found


def test_a_missing_or_dead_engine_is_a_fix(tmp_path: Path) -> None:
    assert "apt install docker.io" in check_engine(FLOORS, "docker", url=f"unix://{tmp_path}/none").fix
    dead = tmp_path / "dead.sock"
    server = socketserver.UnixStreamServer(str(dead), socketserver.BaseRequestHandler)
    server.server_close()
    assert "systemctl start docker" in check_engine(FLOORS, "docker", url=f"unix://{dead}").fix
    assert check_engine(FLOORS, "process").verdict == "SKIP"


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "PASS"), (20, "PASS"), (45, "FIX"), (-45, "FIX")])
def test_a_clock_that_is_wrong_is_a_fix(seconds: int, verdict: str) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    assert network.check_clock(date).verdict == verdict


def test_a_marketplace_that_does_not_answer_is_a_fix_that_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in network.PROXIES:
        monkeypatch.delenv(name, raising=False)
    (reach, clock, bandwidth) = network.check_network("http://127.0.0.1:9")
    assert (reach.verdict, clock.verdict, bandwidth.verdict) == ("FIX", "SKIP", "SKIP")
    assert "behind a proxy, set HTTPS_PROXY first" in reach.fix
    monkeypatch.setenv("http_proxy", "http://alice:secret@127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    behind = network.check_network("http://souk.invalid")[0]
    assert "through the proxy 127.0.0.1:9" in behind.found
    assert "secret" not in behind.found


def test_a_slow_line_is_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(url: str) -> int:
        time.sleep(0.02)
        return 1000

    monkeypatch.setattr(network, "_fetch", trickle)
    monkeypatch.setattr(network, "_send", trickle)
    found = network.check_bandwidth("http://x")
    assert (found.verdict, "10 are needed" in found.found) == ("FIX", True)


def test_a_full_disk_is_a_fix_that_says_how_much_to_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 3 * 1024**3})
    monkeypatch.setattr("provider_agent.preflight.machine.shutil.disk_usage", lambda path: usage)
    found = machine.check_disk(tmp_path / "not" / "made" / "yet", "docker")
    assert (found.verdict, found.fix.startswith("free 17408 MiB below")) == ("FIX", True), found
    assert machine.check_disk(tmp_path, "process").verdict == "FIX"


def test_this_computer_passes_where_the_tests_run() -> None:
    assert machine.check_system().verdict == machine.check_memory().verdict == "PASS"
    assert machine.check_python().found.startswith("3.")


def test_an_interpreter_that_is_not_there_is_a_fix() -> None:
    found = check_interpreter(DesiredSettings(executor="process", runtime_python="/nowhere/bin/python"))
    assert (found.verdict, "/nowhere/bin/python is not there" in found.found) == ("FIX", True)
    assert check_interpreter(DesiredSettings(executor="process")).verdict == "SKIP"
    own = DesiredSettings(executor="process", runtime_python=sys.executable)
    assert check_interpreter(own).verdict == "PASS"
    program = check_interpreter(DesiredSettings(executor="process", runtime_python="/bin/false"))
    assert "/bin/false does not run: it ended with 1" in program.found


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone tries it as the agent's user")
@pytest.mark.parametrize("user", ["nobody", "souk-yet-to-be-made"])
def test_an_interpreter_that_the_agents_user_cannot_enter_is_a_fix(user: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as closed, tempfile.TemporaryDirectory(dir="/tmp") as opened:
        python, link = Path(closed, "python"), Path(opened, "python")
        Path(opened).chmod(0o755)
        python.symlink_to("/bin/true")  # takes any words; stands for a virtual environment below /root
        link.symlink_to(python)
        for named in (python, link):
            found = check_interpreter(DesiredSettings(executor="process", user=user, runtime_python=str(named)))
            assert found.verdict == "FIX"
            assert f"the agent is to run as {user}, which may not enter {closed}" in found.found
            assert "leave --runtime-python out" in found.fix
        Path(closed).chmod(0o755)
        free = check_interpreter(DesiredSettings(executor="process", user=user, runtime_python=str(link)))
        assert free.verdict == "PASS"


@contextmanager
def engine(path: Path, version: dict[str, Any]) -> Iterator[None]:
    """A container engine that reports its version over a Unix socket."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(version).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

        def address_string(self) -> str:
            return "unix"

    server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
