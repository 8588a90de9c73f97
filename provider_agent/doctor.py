"""Checks everything that a node needs, and says for each thing that is missing which command fixes it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

import httpx

from provider_agent.assembly import build_executor
from provider_agent.config import AgentConfig, DataFolder, load_config
from provider_agent.devices.base import find_devices
from provider_agent.errors import AgentError
from provider_agent.executors.process import WARNING
from provider_agent.journal import Journal
from provider_agent.keys import RECEIPT_KEY_NAME, TRANSPORT_KEY_NAME
from provider_agent.runtime_environment import environment_python

DISK_FREE_MIB_MIN = 5 * 1024
CLOCK_SECONDS_MAX = 30
HTTP_SECONDS_MAX = 5.0
TORCH_SECONDS_MAX = 120


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: `fix` is a command or an instruction, empty when nothing is wrong."""

    verdict: Literal["PASS", "FIX", "SKIP"]
    check: str
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """For --json."""
        return asdict(self)


async def examine(folder: DataFolder) -> list[Finding]:
    """Every check, in an order in which the first FIX is the first to fix."""
    try:
        config = load_config(folder)
    except AgentError as error:
        missing = Finding("FIX", "enrolment", str(error), "souk-agent enrol --server URL --token TOKEN")
        return [missing, *_skip("not enrolled", "keys", "journal", "server", "clock", "devices", "engine", "runtime")]
    findings = [Finding("PASS", "enrolment", f"node {config.node_id} of {config.server}")]
    findings += [_check_keys(folder), _check_journal(folder), _check_disk(folder)]
    findings += await _check_server(config)
    findings += [_guard("devices", lambda: _check_devices(config)), await _check_engine(folder, config)]
    findings.append(_check_runtime(folder, config))
    return findings


def _check_keys(folder: DataFolder) -> Finding:
    for name in (TRANSPORT_KEY_NAME, RECEIPT_KEY_NAME):
        path = folder.root / name
        if not path.exists():
            return Finding("FIX", "keys", f"{path} is missing", "enrol again with a fresh --data folder")
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            return Finding("FIX", "keys", f"others can read {path}", f"chmod 600 {path}")
    return Finding("PASS", "keys", "both are here, readable by their owner alone")


def _check_journal(folder: DataFolder) -> Finding:
    def check() -> Finding:
        journal = Journal(folder.journal)
        count = len(journal.load_leases())
        journal.close()
        return Finding("PASS", "journal", f"{count} lease(s)")

    return _guard("journal", check)


def _check_disk(folder: DataFolder) -> Finding:
    free_mib = shutil.disk_usage(folder.root).free // (1024 * 1024)
    if free_mib < DISK_FREE_MIB_MIN:
        fix = f"free space below {folder.root}, at least {DISK_FREE_MIB_MIN} MiB"
        return Finding("FIX", "disk", f"{free_mib} MiB free", fix)
    return Finding("PASS", "disk", f"{free_mib} MiB free")


async def _check_server(config: AgentConfig) -> list[Finding]:
    findings = []
    date = ""
    async with httpx.AsyncClient(timeout=HTTP_SECONDS_MAX) as http:
        for name, url in (("server (api)", config.api_url), ("server (sync)", config.sync_url)):
            try:
                answer = await http.get(f"{url.rstrip('/')}/healthz")
            except httpx.HTTPError as error:
                fix = f"curl -v {url}/healthz"
                findings.append(Finding("FIX", name, f"{url} does not answer: {type(error).__name__} {error}", fix))
                continue
            date = answer.headers.get("Date", date)
            findings.append(Finding("PASS", name, f"{url} answers {answer.status_code}"))
    return [*findings, _check_clock(date)]


def _check_clock(date: str) -> Finding:
    if not date:
        return Finding("SKIP", "clock", "the server told no time")
    seconds = abs((datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds())
    if seconds > CLOCK_SECONDS_MAX:
        return Finding("FIX", "clock", f"{seconds:.0f} s from the server's", "timedatectl set-ntp true")
    return Finding("PASS", "clock", f"within {max(seconds, 1):.0f} s of the server's")


def _check_devices(config: AgentConfig) -> Finding:
    devices = find_devices(config, key_prefix="doctor")
    return Finding("PASS", "devices", ", ".join(f"{device.kind} {device.model}" for device in devices))


async def _check_engine(folder: DataFolder, config: AgentConfig) -> Finding:
    try:
        version = await build_executor(folder, config).check()
    except AgentError as error:
        fix = "systemctl start docker (or set DOCKER_HOST), and add this user to the group docker"
        return Finding("FIX", "engine", str(error), fix)
    return Finding("PASS", "engine", WARNING if config.executor == "process" else version)


def _check_runtime(folder: DataFolder, config: AgentConfig) -> Finding:
    if config.executor == "docker":
        return Finding("SKIP", "runtime", f"torch is in the image {config.train_image}")
    if importlib.util.find_spec("runtimes") is None:
        return Finding("FIX", "runtime", "the package `runtimes` is missing", "pip install 'gpusouk[agent]'")
    python = Path(config.runtime_python) if config.runtime_python else environment_python(folder)
    if not python.exists():
        return Finding("FIX", "runtime", f"{python} is not built", f"souk-agent start --data {folder.root}")
    code = "import torch; print(torch.__version__)"
    try:
        done = subprocess.run(  # noqa: S603 - the configured interpreter
            [python, "-c", code],
            capture_output=True,
            text=True,
            timeout=TORCH_SECONDS_MAX,
            check=False,
            env={"PATH": os.defpath},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("FIX", "runtime", f"{python} does not run: {error}", f"{python} -c '{code}'")
    if done.returncode != 0:
        return Finding("FIX", "runtime", f"{python} has no torch", f"{python} -m pip install torch")
    return Finding("PASS", "runtime", f"{python} has torch {done.stdout.strip()}")


def _guard(check: str, examine_one: Callable[[], Finding]) -> Finding:
    """A check that raises is a finding, not an end."""
    try:
        return examine_one()
    except Exception as error:
        return Finding("FIX", check, f"{type(error).__name__}: {error}", "see docs/provider-guide.md")


def _skip(why: str, *checks: str) -> list[Finding]:
    return [Finding("SKIP", check, why) for check in checks]
