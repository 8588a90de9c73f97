"""The contracts' compiler runs where nobody installed Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from billing.chain.contract import compiling


def test_node_is_found_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for program in ("node", "npm"):
        command = [*compiling._node(program), "--version"]
        version = subprocess.run(command, capture_output=True, text=True, check=True, env={"HOME": str(Path.home())})
        assert re.fullmatch(r"v?[0-9]+\.[0-9]+\.[0-9]+\s*", version.stdout), version
