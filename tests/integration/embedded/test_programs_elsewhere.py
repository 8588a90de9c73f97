"""PostgreSQL's programs where its unprivileged user may not read the installed ones: a copy, with its libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from marketplace.config.embedded import postgres

pytestmark = pytest.mark.own_servers


def test_copied_programs_find_their_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_may_enter", lambda folder, user: False)
    programs = postgres._programs_for(tmp_path / "postgres", (65534, 65534))
    assert programs.is_relative_to(tmp_path)
    for name in ("postgres", "initdb"):
        done = subprocess.run([programs / name, "--version"], capture_output=True, text=True, check=False)
        assert (done.returncode, postgres.MAJOR_VERSION in done.stdout) == (0, True), done.stderr
