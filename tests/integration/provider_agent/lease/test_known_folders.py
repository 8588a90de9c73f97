"""Data folders of agents that run on this computer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from provider_agent.commands import known_folders


@pytest.mark.parametrize("option", [["--data", "bobs"], ["--data=bobs"]], ids=" ".join)
def test_a_relative_folder_of_a_running_agent_is_that_of_its_process(tmp_path: Path, option: list[str]) -> None:
    folder = tmp_path / "bobs"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    sleep = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)", "souk-agent", "start", *option]
    with subprocess.Popen(sleep, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert folder in list(known_folders.known_folders())
        finally:
            process.kill()
