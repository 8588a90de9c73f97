"""What benchmarks/gateway.py measures: routes from a client to the engine, each started alone and pinned to one core.

`direct` is no subject at all; nginx is Debian's package, unpacked below .cache/ and not installed; LiteLLM comes from
the package index into an environment of its own there. What cannot be had is a skipped row with the reason.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.engine import free_port
from tests.fakes.serving_stack import Elsewhere

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
UV = Path(sys.executable).parent / "uv"
LITELLM = "litellm[proxy]==1.106.2"
LITELLM_KEY = "sk-benchmark"
INSTALL_SECONDS, START_SECONDS, STOP_SECONDS = 600, 90, 10
SUBJECT_CORE, OTHER_CORE = 0, 1


class NotMeasured(Exception):
    """It cannot be had, or does not start here."""


class Child:
    """A process group of the benchmark's, on a core."""

    def __init__(self, argv: list[str], *, core: int, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = (folder / f"{Path(argv[0]).name}-{free_port()}.log").resolve()
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["taskset", "-c", str(core), *argv],
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, port: int) -> None:
        """Until it listens. Raises NotMeasured."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise NotMeasured(f"it does not listen: {self.log.read_text(errors='replace')[-600:]}")

    def pause(self, is_paused: bool) -> None:
        """Let it take no processor time, or go on."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)

    def close(self) -> None:
        """End the group."""
        self.pause(False)
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                try:
                    self.process.wait(seconds)
                except subprocess.TimeoutExpired:
                    continue
            return


def memory_kib(group: int) -> int:
    """What a process group holds, pages that it shares divided by their holders."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total


def cpu_seconds(group: int) -> float:
    """Processor time of a process group so far."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == group:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


class Route(ABC):
    """One route from a client to the engine."""

    name: str
    key = "sk-none"
    version = ""
    can_pause = True  # while another is measured

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.port = 0

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Fetch what it needs. Raises NotMeasured."""

    @abstractmethod
    def start(self, engine: Elsewhere, folder: Path) -> None:
        """Answer on `self.port`, in front of the engine. Raises NotMeasured."""

    @property
    def subject(self) -> int | None:
        """The process group whose memory and processor time are measured; None: there is nothing between."""
        return self.children[0].process.pid if self.children else None

    def pause(self, is_paused: bool) -> None:
        """Stand still while another is measured, or go on."""
        for child in self.children if self.can_pause else ():
            child.pause(is_paused)

    def stop(self) -> None:
        """End what was started, the last first."""
        while self.children:
            self.children.pop().close()


class Direct(Route):
    """The client asks the engine itself."""

    name = "direct"

    def start(self, engine: Elsewhere, folder: Path) -> None:
        self.port = engine.port


class Nginx(Route):
    """A reverse proxy with one worker and kept-alive connections; it checks nothing and counts nothing."""

    name = "nginx"
    folder = CACHE / "nginx"

    def prepare(self) -> None:
        if not (self.folder / "usr/sbin/nginx").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            _run(["apt-get", "-q", "download", "nginx"], cwd=self.folder)
            _run(["dpkg", "-x", *map(str, self.folder.glob("nginx_*.deb")), str(self.folder)], cwd=self.folder)
        results = subprocess.run([self.folder / "usr/sbin/nginx", "-v"], capture_output=True, text=True, check=False)
        if results.returncode:
            raise NotMeasured(results.stderr.strip())
        self.version = results.stderr.strip().rpartition("/")[2]

    def start(self, engine: Elsewhere, folder: Path) -> None:
        self.port = free_port()
        prefix = Path(tempfile.mkdtemp(prefix="nginx-", dir=folder))
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temp = " ".join(f"{kind}_temp_path {prefix}/{kind};" for kind in kinds)
        (prefix / "nginx.conf").write_text(
            f"""daemon off; worker_processes 1; pid {prefix}/pid; error_log {prefix}/error.log;
            {"user root;" if os.geteuid() == 0 else ""}
            events {{ worker_connections 8192; }}
            http {{
              access_log off; {temp} keepalive_requests 10000000;
              upstream engine {{ server 127.0.0.1:{engine.port}; keepalive 512; keepalive_requests 10000000; }}
              server {{
                listen 127.0.0.1:{self.port} backlog=4096;
                location / {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
                              proxy_buffering off; proxy_read_timeout 600s; }}
              }}
            }}"""
        )
        argv = [str(self.folder / "usr/sbin/nginx"), "-p", str(prefix), "-c", str(prefix / "nginx.conf")]
        self.children.append(Child(argv, core=SUBJECT_CORE, folder=folder))
        self.children[-1].wait_for(self.port)


class LiteLLM(Route):
    """LiteLLM's proxy with one worker, a master key and no database."""

    name = "LiteLLM"
    key = LITELLM_KEY
    version = LITELLM.rpartition("=")[2]
    folder = CACHE / f"litellm-{version}"

    def prepare(self) -> None:
        if not (self.folder / "bin/litellm").exists():
            _run([str(UV), "venv", "--quiet", "--python", sys.executable, str(self.folder)], cwd=ROOT)
            python = str(self.folder / "bin/python")
            _run([str(UV), "pip", "install", "--quiet", "--python", python, LITELLM, "uvloop"], cwd=ROOT)

    def start(self, engine: Elsewhere, folder: Path) -> None:
        self.port = free_port()
        settings: dict[str, Any] = {
            "model_list": [
                {
                    "model_name": "fake",
                    "litellm_params": {
                        "model": "openai/fake",
                        "api_base": f"http://127.0.0.1:{engine.port}/v1",
                        "api_key": "none",
                    },
                }
            ],
            "general_settings": {"master_key": LITELLM_KEY},
            "litellm_settings": {"telemetry": False, "num_retries": 0},
        }
        config = folder / "litellm.json"  # JSON is YAML too
        config.write_text(json.dumps(settings))
        argv = [str(self.folder / "bin/litellm"), "--config", str(config), "--host", "127.0.0.1"]
        argv += ["--port", str(self.port), "--num_workers", "1"]
        env = {
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PYTHONPATH": "",
            "LITELLM_MODE": "PRODUCTION",
        }
        self.children.append(Child(argv, core=SUBJECT_CORE, folder=folder, env=env))
        self.children[-1].wait_for(self.port)


def _run(argv: list[str], *, cwd: Path) -> None:
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasured(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise NotMeasured(f"{argv[0]}: {done.stderr.strip()[-300:]}")
