"""Checks everything that a node needs, and names for each missing thing the command that fixes it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from provider_agent.assembly import build_executor
from provider_agent.config import AgentConfig, DataFolder, load_config
from provider_agent.devices.base import find_devices
from provider_agent.errors import ENROL_COMMAND, AgentError, BadConfig
from provider_agent.executors.process import WARNING
from provider_agent.facts import agent_version
from provider_agent.journal import Journal
from provider_agent.keys import RECEIPT_KEY_NAME, TRANSPORT_KEY_NAME
from provider_agent.node.abilities import check_abilities
from provider_agent.node.self_test_result import load_self_test
from provider_agent.packaging.prefix import own_prefix
from provider_agent.preflight.abilities import DesiredSettings
from provider_agent.preflight.containers import check_driver, check_toolkit
from provider_agent.preflight.examine import examine_computer
from provider_agent.preflight.finding import Finding, guard
from provider_agent.preflight.image import check_image
from provider_agent.preflight.machine import DISK_MIB_MIN
from provider_agent.preflight.network import check_network
from provider_agent.process_venv import environment_python, is_built
from provider_agent.updating.update_request import newest_rollback

DISK_FREE_MIB_MIN = 5 * 1024
HTTP_SECONDS_MAX = 5.0
TORCH_SECONDS_MAX = 120


async def examine(folder: DataFolder, *, server: str = "", executor: str = "docker") -> list[Finding]:
    """Every check, in an order in which the first FIX is the first to fix. `server`: of a computer not yet enrolled."""
    if server and not folder.config.exists():
        return await _examine_before(folder, server.rstrip("/"), executor)
    try:
        config = load_config(folder)
    except AgentError as error:
        missing = Finding("FIX", "enrolment", str(error), ENROL_COMMAND)
        rest = "keys", "journal", "server", "clock", "devices", "engine", "disk limit", "egress", "fabric address"
        return [missing, *_skip("not enrolled", *rest, "gangs", "runtime")]
    findings = [Finding("PASS", "enrolment", f"node {config.node_id} of {config.server}")]
    findings += [_check_keys(folder), _check_journal(folder), _check_disk(folder)]
    findings += await asyncio.to_thread(check_network, config.api_url, config.sync_url)
    floors = (await _read_manifest(config.server)).get("floors", {})
    findings.append(guard("driver", lambda: check_driver(floors, config.device_kind)))
    findings += [guard("devices", lambda: _check_devices(config)), await _check_engine(folder, config)]
    findings += await asyncio.to_thread(check_abilities, folder, config)  # the agent's loops go on meanwhile
    findings.append(guard("toolkit", lambda: check_toolkit(floors, config.executor)))
    findings.append(await asyncio.to_thread(_check_runtime, folder, config))
    return [*findings, _check_updates(config), _check_self_test(folder)]


def _check_updates(config: AgentConfig) -> Finding:
    """Whether the agent keeps itself up to date, and what went wrong with it last."""
    prefix, version = own_prefix(), agent_version()
    if prefix is None:
        return Finding("SKIP", "updates", f"version {version}; not installed by install.sh, so update it as you did")
    how = "by `souk-agent update --now` alone" if config.updates == "manual" else "by itself"
    found = f"version {version}, updated {how}"
    if (rollback := newest_rollback(prefix)) is not None:  # the marketplace's fault, so nothing to fix here
        found += f"; {rollback.version} was rolled back {rollback.at:%Y-%m-%d %H:%M} UTC: {rollback.reason}"
    if last := prefix.record().last:
        found += f"; last update: {last.get('version')} {last.get('outcome')} {str(last.get('at'))[:16]} UTC"
    return Finding("PASS", "updates", found)


def _check_self_test(folder: DataFolder) -> Finding:
    """The result of the self-test after programs failed in a row, until the node is resumed."""
    result = load_self_test(folder)
    if result is None:
        return Finding("SKIP", "self-test", "programs did not fail in a row")
    if result.is_faulty:
        fix = "; ".join([*result.fixes, "then: souk-agent resume"])
        return Finding("FIX", "self-test", f"{result.summary} ({result.at[:16]} UTC)", fix)
    return Finding("PASS", "self-test", f"{result.summary} ({result.at[:16]} UTC)")


async def _examine_before(folder: DataFolder, server: str, executor: str) -> list[Finding]:
    """What install.sh checks before it installs."""
    if executor not in DISK_MIB_MIN:
        raise BadConfig(f"--executor is {' or '.join(DISK_MIB_MIN)}, not {executor!r}.")
    manifest = await _read_manifest(server)
    return await asyncio.to_thread(
        examine_computer,
        server=server,
        sync_server=str(manifest.get("sync_server", "")),
        folder=folder.root,
        desired=DesiredSettings(executor),
        device_kind="auto",
        floors=manifest.get("floors", {}),
    )


async def _read_manifest(server: str) -> dict[str, Any]:
    """The marketplace's minimum versions; none if it cannot be reached, which is a finding of its own."""
    try:
        async with httpx.AsyncClient(timeout=HTTP_SECONDS_MAX) as http:
            answer = await http.get(f"{server}/dist/manifest.json")
            found = answer.raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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

    return guard("journal", check)


def _check_disk(folder: DataFolder) -> Finding:
    free_mib = shutil.disk_usage(folder.root).free // (1024 * 1024)
    if free_mib < DISK_FREE_MIB_MIN:
        fix = f"free space below {folder.root}, at least {DISK_FREE_MIB_MIN} MiB"
        return Finding("FIX", "disk", f"{free_mib} MiB free", fix)
    return Finding("PASS", "disk", f"{free_mib} MiB free")


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
        return replace(check_image("docker", config.train_image, url=config.engine_url), check="runtime")
    if importlib.util.find_spec("runtimes") is None:
        return Finding("FIX", "runtime", "the package `runtimes` is missing", "pip install 'gpusouk[agent]'")
    python = Path(config.runtime_python) if config.runtime_python else environment_python(folder)
    if missing := _missing_interpreter(folder, config, python):
        return missing
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


def _missing_interpreter(folder: DataFolder, config: AgentConfig, python: Path) -> Finding | None:
    if config.runtime_python and not os.access(python, os.X_OK):
        fix = f"stop the agent, and name an interpreter with torch as `runtime_python` in {folder.root}/config.json"
        return Finding("FIX", "runtime", f"{python} is no program that can be run", fix)
    if not config.runtime_python and not is_built(folder):
        return Finding("FIX", "runtime", f"{python} is not built", f"souk-agent start --data {folder.root}")
    return None


def _skip(why: str, *checks: str) -> list[Finding]:
    return [Finding("SKIP", check, why) for check in checks]
