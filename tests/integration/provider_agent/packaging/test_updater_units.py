"""The updater's units are ones that systemd takes: as root's, as a user's own, and under paths with odd characters."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from provider_agent.config import DataFolder
from provider_agent.packaging.prefix import Prefix
from provider_agent.packaging.updater_service import update_units

NAME = "souk-agent-1234abcd-update"


def verify(folder: Path, texts: dict[str, str], *, is_system: bool) -> list[str]:
    """What systemd finds wrong with these units."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    units = folder / "units"
    units.mkdir()
    for name, text in texts.items():
        (units / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *([] if is_system else ["--user"]), *sorted(units.iterdir())],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(folder), "HOME": str(folder)},
    )
    return [line for line in done.stderr.splitlines() if "souk-agent" in line or str(folder) in line]


def units_of(folder: Path, *, is_system: bool) -> dict[str, str]:
    """Of an installation whose `good` has an interpreter."""
    prefix = Prefix(folder / "with space %h $HOME")
    python = prefix.root / "good" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return update_units(prefix, DataFolder(prefix.root / "data"), NAME, is_system=is_system)


@pytest.mark.parametrize("is_system", [True, False], ids=["root's", "a user's"])
def test_systemd_finds_nothing_wrong_with_the_updaters_units(tmp_path: Path, is_system: bool) -> None:
    units = units_of(tmp_path, is_system=is_system)
    assert set(units) == {f"{NAME}.service", f"{NAME}.path", f"{NAME}.timer"}
    assert verify(tmp_path, units, is_system=is_system) == [], units


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "message"),
    [
        ("service", "Type=oneshot", "Type=once", "once"),
        ("service", "ProtectSystem=strict", "ProtectSystem=sometimes", "sometimes"),
        ("path", "PathChanged=/", "PathChanged=", "PathChanged="),
        ("timer", "OnBootSec=2min", "OnBootSec=soon", "soon"),
    ],
)
def test_a_mistake_in_any_of_them_would_be_found(
    tmp_path: Path, kind: str, right: str, wrong: str, message: str
) -> None:
    units = units_of(tmp_path, is_system=True)
    name = f"{NAME}.{kind}"
    assert right in units[name]
    units[name] = units[name].replace(right, wrong)
    assert any(message in line for line in verify(tmp_path, units, is_system=True))


def test_the_updater_may_write_its_prefix_and_nothing_else(tmp_path: Path) -> None:
    text = units_of(tmp_path, is_system=True)[f"{NAME}.service"]
    writable = [line for line in text.splitlines() if line.startswith("ReadWritePaths=")]
    assert writable == [f'ReadWritePaths="{tmp_path}/with space %%h $HOME"']
    for line in ("ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet=CAP_DAC_READ_SEARCH"):
        assert f"\n{line}\n" in text
