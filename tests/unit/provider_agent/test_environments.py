"""Environments that a node keeps: whole or absent, sealed, bounded; and the keys under which they are found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from provider_agent.errors import EnvironmentRefused
from provider_agent.lease.dependencies.environments import Environments


def build(kept: Environments, key: str, lease: Path, *, size: int = 100) -> Path:
    """One complete environment with a file of so many bytes."""
    lease.mkdir(parents=True, exist_ok=True)
    folder = kept.begin(key, lease)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to("/usr/bin/env")
    (folder / "package.py").write_bytes(b"x" * size)
    kept.complete(key, folder)
    return folder


def test_a_link_or_open_file_of_the_build_leads_to_nothing_that_is_kept(tmp_path: Path) -> None:
    kept, lease = Environments(tmp_path / "environments", tmp_path / "leases"), tmp_path / "leases" / "one"
    lease.mkdir(parents=True)
    folder = kept.begin("a", lease)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to("/usr/bin/env")
    (folder / "package.py").write_text("good")
    (tmp_path / "left").hardlink_to(folder / "package.py")
    with (folder / "package.py").open("w") as left_open:
        left_open.write("good")
        left_open.flush()
        kept.complete("a", folder)
        left_open.write(" and evil")
    (tmp_path / "left").write_text("evil")
    assert (folder / "package.py").read_text() == "good"
    assert (folder / "package.py").stat().st_mode & 0o222 == 0
    assert kept.find("a", lease) == folder


@pytest.mark.parametrize("target", ["/tmp/evil", "../../evil", "/etc"])
def test_a_link_out_of_the_environment_is_refused(tmp_path: Path, target: str) -> None:
    kept, lease = Environments(tmp_path / "environments", tmp_path / "leases"), tmp_path / "leases" / "one"
    lease.mkdir(parents=True)
    folder = kept.begin("a", lease)
    (folder / "package").symlink_to(target)
    with pytest.raises(EnvironmentRefused, match="package is a link that leads out"):
        kept.complete("a", folder)
    kept.abandon(folder)
    assert list((tmp_path / "environments").iterdir()) == []
    assert kept.find("a", lease) is None


def test_what_was_used_longest_ago_is_evicted_unless_a_lease_uses_it(tmp_path: Path) -> None:
    kept = Environments(tmp_path / "environments", tmp_path / "leases", bytes_max=250)
    used = build(kept, "used", tmp_path / "leases" / "one")
    old = build(kept, "old", tmp_path / "leases" / "two")
    (tmp_path / "leases" / "two" / "environment.json").unlink()
    for age, key in ((200, "used"), (100, "old")):
        marker = tmp_path / "environments" / f"{key}.json"
        os.utime(marker, (marker.stat().st_mtime - age,) * 2)
    build(kept, "new", tmp_path / "leases" / "three")
    assert kept.find("old", tmp_path / "leases" / "two") is None
    assert not old.exists()
    assert kept.find("used", tmp_path / "leases" / "one") == used
    with pytest.raises(EnvironmentRefused, match="no room"):
        build(kept, "more", tmp_path / "leases" / "four")


def test_a_build_that_was_cut_off_is_removed_by_the_next(tmp_path: Path) -> None:
    lease = tmp_path / "leases" / "one"
    lease.mkdir(parents=True)
    half = Environments(tmp_path / "environments", tmp_path / "leases").begin("a", lease)
    after = Environments(tmp_path / "environments", tmp_path / "leases")  # the agent was killed
    assert after.find("a", lease) is None
    folder = build(after, "a", lease)
    assert not half.exists()
    assert json.loads((tmp_path / "environments" / "a.json").read_text())["folder"] == folder.name
