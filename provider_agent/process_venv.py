"""Builds the virtual environment that the process executor's programs run in: torch is there, never in the agent.

One folder a version, built where it stays (its scripts carry their path) and marked with what is in it when it is
complete: a half-built one is never used, and one that lacks what a program needs now is added to.
SOUK_TORCH_INDEX names the package index that torch is taken from (a CPU build, for example).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from provider_agent.config import DataFolder
from provider_agent.errors import RuntimeUnavailable
from provider_agent.facts import agent_version
from provider_agent.system.atomic import write_atomically

INDEX_VARIABLE = "SOUK_TORCH_INDEX"
STEP_SECONDS_MAX = 3600
DISTRIBUTION = "gpusouk"
OUTPUT_LINES_SHOWN = 15
COMPLETE_NAME = ".complete"  # written last; holds the extras that are installed
EXTRAS = "train,serve"

PrintLine = Callable[[str], None]


def environment_python(folder: DataFolder) -> Path:
    """The interpreter of this version's environment, whether it is built or not."""
    return _environment(folder) / "bin" / "python"


def is_built(folder: DataFolder) -> bool:
    """Whether this version's environment is there, and whole."""
    return _installed_extras(folder) == EXTRAS


def build_environment(folder: DataFolder, print_line: PrintLine) -> Path:
    """Build this version's environment unless it is there; returns its interpreter. Raises RuntimeUnavailable."""
    python, environment = environment_python(folder), _environment(folder)
    if is_built(folder):
        return python
    own = _own_requirement()
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    if _installed_extras(folder) is None:
        shutil.rmtree(environment, ignore_errors=True)
        folder.runtimes.mkdir(parents=True, exist_ok=True)
        print_line(f"Building the runtime environment in {environment} (once for each version; torch is large)")
        _step([sys.executable, "-m", "venv", str(environment)], print_line)
        index = os.environ.get(INDEX_VARIABLE, "")
        _step([*pip, _torch_requirement(), *(["--index-url", index] if index else [])], print_line)
    else:
        print_line(f"Adding to the runtime environment in {environment} what serving needs")
    _step([*pip, own], print_line)
    write_atomically(environment / COMPLETE_NAME, EXTRAS.encode())
    print_line(f"The runtime environment is ready: {python}")
    return python


def _environment(folder: DataFolder) -> Path:
    return folder.runtimes / f"train-{agent_version()}"


def _installed_extras(folder: DataFolder) -> str | None:
    """What the environment was built with; None where none is whole."""
    try:
        return (_environment(folder) / COMPLETE_NAME).read_text()
    except FileNotFoundError:
        return None


def _torch_requirement() -> str:
    """torch as this version pins it."""
    try:
        requires = distribution(DISTRIBUTION).requires or []
    except PackageNotFoundError:
        requires = []
    for requirement in requires:
        found = re.match(r"torch\s*==\s*([0-9.]+)", requirement)
        if found:
            return f"torch=={found.group(1)}"
    return "torch"


def _own_requirement() -> str:
    """This very version with what the runtimes need: from the index, or from where it was installed."""
    try:
        direct = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError as error:
        raise RuntimeUnavailable(
            "This agent runs from a source checkout, which cannot be installed again. "
            "Name an interpreter that has torch: `souk-agent enrol --server URL --token TOKEN --executor process "
            "--runtime-python PATH`, or `runtime_python` in config.json of a node that is enrolled."
        ) from error
    if direct:
        return f"{DISTRIBUTION}[{EXTRAS}] @ {json.loads(direct)['url']}"
    return f"{DISTRIBUTION}[{EXTRAS}]=={agent_version()}"


def _step(command: list[str], print_line: PrintLine) -> None:
    """Run one command; its output is shown only when it fails."""
    print_line("  " + " ".join(command[-3:]))
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=STEP_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeUnavailable(f"{command[0]} did not finish: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-OUTPUT_LINES_SHOWN:])
        raise RuntimeUnavailable(f"`{' '.join(command)}` failed:\n{tail}")
