"""What a customer installs and waits for: the size of the command and the time of its `--help`, ours and the peers'.

Each is installed from the package index into an environment of its own, without extras; one that cannot be installed or
does not start is a skipped row with the reason. Rounds take turns. What the commands can do differs; these are only the
costs of having them.

    python -m benchmarks.client [--rounds 7] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.record import publish
from marketplace.portal.install.wheel import build_wheel

OURS = "gpusouk, this source"
UV = Path(sys.executable).parent / "uv"
INSTALL_SECONDS, START_SECONDS = 900, 60


@dataclass(frozen=True)
class Command:
    """A command and the requirement that brings it."""

    name: str
    requirement: str
    program: str


COMMANDS = (
    Command("souk", OURS, "souk"),
    Command("dstack", "dstack==0.22.5", "dstack"),
    Command("SkyPilot", "skypilot==0.14.1", "sky"),
    Command("Vast", "vastai==1.9.1", "vastai"),
    Command("Prime Intellect", "prime==0.18.0", "prime"),
    Command("Lium", "lium.io==0.32.0", "lium"),
)


class NotMeasured(Exception):
    """It could not be installed, or does not start."""


def main() -> None:
    """Install each, measure in turns, publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="souk-client-") as name:
        rows = {command.name: install_and_weigh(command, Path(name)) for command in COMMANDS}
        seconds: dict[str, list[float]] = {name: [] for name, row in rows.items() if "skipped" not in row}
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            for command in COMMANDS:
                if command.name in seconds:
                    seconds[command.name].append(seconds_to_help(program_of(command, Path(name))))
    for command_name, samples in seconds.items():
        rows[command_name]["help_s"] = round(statistics.median(samples), 2)
    publish("client", {"rounds": arguments.rounds, "commands": rows})


def install_and_weigh(command: Command, folder: Path) -> dict[str, Any]:
    """Its version, its packages and their size; or why it is skipped."""
    print(f"installing {command.name}", file=sys.stderr)
    try:
        install(command, folder)
        seconds_to_help(program_of(command, folder))  # writes its byte code, which belongs to the size
    except NotMeasured as error:
        return {"requirement": command.requirement, "skipped": str(error)}
    site = next((folder / command.name / "lib").glob("python*")) / "site-packages"
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    return {
        "requirement": command.requirement,
        "packages": len(list(metadata.distributions(path=[str(site)]))),
        "installed_mib": round(size / 2**20),
    }


def install(command: Command, folder: Path) -> None:
    """Into an environment of its own."""
    python = folder / command.name / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / command.name)], check=True)
        requirement = str(build_wheel(folder)) if command.requirement == OURS else command.requirement
        install = [str(UV), "pip", "install", "--quiet", "--python", str(python), requirement]
        subprocess.run(install, check=True, timeout=INSTALL_SECONDS, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr or error).strip().splitlines()
        raise NotMeasured(f"not installed: {lines[-1].strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"not installed within {INSTALL_SECONDS} s") from error


def seconds_to_help(program: Path) -> float:
    """Wall time of PROGRAM --help, with a home folder of its own."""
    home = program.parents[1] / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    started = time.perf_counter()
    try:
        subprocess.run([program, "--help"], env=env, check=True, capture_output=True, timeout=START_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotMeasured(f"does not start: {error}") from error
    return time.perf_counter() - started


def program_of(command: Command, folder: Path) -> Path:
    """Where its program is once it is installed."""
    return folder / command.name / "bin" / command.program


if __name__ == "__main__":
    main()
