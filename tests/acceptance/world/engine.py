"""A container engine on a computer of the world, with the image for training; its images stay for the next time."""

from __future__ import annotations

import time
from pathlib import Path

from tests.acceptance.world.computer import Computer, ComputerFailed
from tests.contracts.executors.train_image import image_tag

AGENTS_IMAGE = "gpusouk/train:latest"  # what an agent takes where its provider names none
LOG = "/var/log/dockerd.log"
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.3
CGROUPS = Path("/sys/fs/cgroup")


def start_engine(computer: Computer) -> None:
    """As a distribution's service does, on the usual socket; containers that a former run left there go."""
    computer.start_program(
        LOG, "dockerd", "--cgroup-parent", f"/{cgroup_of(computer)}", "--shutdown-timeout", "2", "--group", "docker"
    )
    until = time.monotonic() + READY_SECONDS_MAX
    while "Server Version" not in computer.run("docker", "info", is_checked=False):
        if time.monotonic() > until:
            raise ComputerFailed(f"{computer.name}: dockerd did not start:\n{computer.run('tail', '-n', '30', LOG)}")
        time.sleep(POLL_SECONDS)
    if left := containers(computer):
        computer.run("docker", "rm", "--force", *left)
    computer.run("docker", "network", "prune", "--force")
    computer.run("docker", "tag", image_tag(), AGENTS_IMAGE)


def stop_engine(computer: Computer) -> None:
    """Orderly, so that its folder can be used again."""
    computer.shell(
        f"""docker ps --all --quiet | xargs --no-run-if-empty docker rm --force
        pid=$(cat /var/run/docker.pid)
        kill "$pid"
        timeout {STOP_SECONDS_MAX:.0f} tail --pid="$pid" --follow /dev/null""",
        is_checked=False,
    )


def containers(computer: Computer) -> list[str]:
    """Names of all its containers, also of those that ended."""
    return computer.run("docker", "ps", "--all", "--format", "{{.Names}}").split()


def cgroup_of(computer: Computer) -> str:
    """The control group that all its containers are in."""
    return f"souk-world-{computer.name}"


def cgroups_left() -> list[Path]:
    """Control groups of the world's engines, the innermost first."""
    found = [path for top in CGROUPS.glob("**/souk-world-*") for path in [top, *top.rglob("*")] if path.is_dir()]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def remove_cgroups() -> None:
    """They stay when an engine is killed; only empty ones can be removed."""
    for path in cgroups_left():
        path.rmdir()
