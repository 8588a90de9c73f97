"""The systemd unit is one that systemd takes, and lets the agent do no more than it must."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from provider_agent.packaging.unit import Unit, unit_text
from provider_agent.system.capabilities import NEEDED

ROOT = Path(__file__).resolve().parents[4]
USERS = ["souk-agent", "root", ""]
MAKES_A_MOUNT_NAMESPACE = {  # systemd.exec(5)
    *(
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "ReadWritePaths",
        "ReadOnlyPaths",
    ),
    *("InaccessiblePaths", "BindPaths", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs"),
    *("ProtectControlGroups", "ProtectProc", "ProcSubset", "RootDirectory", "TemporaryFileSystem", "MountFlags"),
}


@pytest.mark.parametrize("executor", ["docker", "process"])
@pytest.mark.parametrize("user", USERS)
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, user: str, executor: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    folder = tmp_path / "with space %h $HOME"
    folder.mkdir()
    program = folder / "souk-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = unit_text(
        Unit(program, folder / "data", folder / "agent.env", "daemon" if user == "souk-agent" else user, executor)
    )
    unit = tmp_path / "souk-agent.service"
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *([] if user else ["--user"]), unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    about_us = [line for line in done.stderr.splitlines() if "souk-agent" in line or str(tmp_path) in line]
    assert about_us == [], text


def test_a_unit_with_a_mistake_would_be_found(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    unit = tmp_path / "souk-agent.service"
    text = unit_text(Unit(Path("/no/such/program"), Path("/data"), Path("/data/agent.env"), "daemon"))
    unit.write_text(text.replace("ProtectSystem=strict", "ProtectSystem=sometimes"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert "sometimes" in done.stderr
    assert "/no/such/program" in done.stderr


def test_the_agents_user_can_change_nothing_but_its_data() -> None:
    text = unit_text(
        Unit(Path("/opt/a/bin/souk-agent"), Path("/var/lib/a"), Path("/var/lib/a/agent.env"), "souk-agent")
    )
    for line in ("ProtectSystem=strict", "ReadWritePaths=/var/lib/a", "NoNewPrivileges=yes", "CapabilityBoundingSet="):
        assert f"\n{line}\n" in text
    assert "KillMode=process" in text, "programs outlive the agent"


def test_a_root_agent_with_containers_has_the_capabilities_they_need_and_no_others() -> None:
    text = text_of("root", "docker")
    assert f"\nCapabilityBoundingSet={' '.join(NEEDED)}\n" in text
    assert "CAP_SYS_MODULE" not in text
    assert not {line.partition("=")[0] for line in text.splitlines()} & MAKES_A_MOUNT_NAMESPACE, (
        "the engine sees its mounts"
    )
    for line in ("NoNewPrivileges=yes", "RestrictNamespaces=mnt net", "SystemCallFilter=@system-service @mount"):
        assert f"\n{line}\n" in text


def test_a_root_agent_without_containers_has_no_capability() -> None:
    text = text_of("root", "process")
    assert "\nCapabilityBoundingSet=\n" in text
    assert "@mount" not in text


def text_of(user: str, executor: str) -> str:
    data = Path("/var/lib/a")
    return unit_text(Unit(Path("/opt/a/bin/souk-agent"), data, data / "agent.env", user, executor))


def test_every_requirement_of_the_agent_is_locked_by_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["agent"]]
    lock = (ROOT / "provider_agent" / "packaging" / "requirements.lock").read_text().lower()
    for requirement in wanted:
        name = requirement.split(">")[0].split("=")[0].split("[")[0].lower()
        assert f"\n{name}==" in f"\n{lock}", f"{name} is not in requirements.lock: make lock"
    blocks = lock.split("\n\n")[0].split(" \\\n")
    assert any("--hash=sha256:" in block for block in blocks)


def test_preflight_needs_nothing_but_python() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-I",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); import provider_agent.preflight.__main__",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
