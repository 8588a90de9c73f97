"""Commands on interfaces and rules: in the agent's network namespace, or in a program's."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provider_agent.errors import ExecutorFailed
from provider_agent.system.programs import SYSTEM_PATH

COMMAND_SECONDS_MAX: Final = 30


@dataclass(frozen=True)
class System:
    """One network namespace; `prefix` is a command that enters it, `failure` begins the message of an error."""

    prefix: tuple[str, ...] = ()
    failure: str = "The gang's network cannot be made"

    def run(self, *command: str, text: str = "", is_secret: bool = False) -> str:
        """Its output; raises ExecutorFailed. The output of a command that was given a secret is not repeated."""
        done = self._call(command, text)
        if done.returncode != 0:
            output = "" if is_secret else done.stderr.strip()[-300:]
            raise ExecutorFailed(f"{self.failure}: {command[0]} {command[1]}: {output or 'refused'}")
        return done.stdout

    def asks(self, *command: str) -> bool:
        """Whether it succeeds."""
        return self._call(command, "").returncode == 0

    def _call(self, command: tuple[str, ...], text: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - fixed programs, validated arguments
                [*self.prefix, *command],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",  # names of interfaces may be any bytes
                check=False,
                timeout=COMMAND_SECONDS_MAX,
                env={"PATH": SYSTEM_PATH, "LC_ALL": "C"},
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ExecutorFailed(f"{self.failure}: {command[0]}: {type(error).__name__}") from error


@dataclass(frozen=True)
class Program:
    """A running container: its first process, as this node numbers it."""

    pid: int
    container: str

    def require(self) -> None:
        """Raises ExecutorFailed unless the process is there, is the container's, and has a network of its own."""
        try:
            cgroups = Path(f"/proc/{self.pid}/cgroup").read_text()
            is_ours = Path(f"/proc/{self.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
        except OSError as error:
            raise ExecutorFailed(f"The container's process cannot be seen from here: {error}") from error
        if self.pid <= 1 or self.container not in cgroups or is_ours:
            raise ExecutorFailed("The engine's process numbers are not this computer's: the agent must see them.")

    def has_interface(self, name: str) -> bool:
        """Whether it has this interface; without starting a command."""
        try:
            lines = Path(f"/proc/{self.pid}/net/dev").read_text().splitlines()
        except OSError:
            return False
        return any(line.strip().startswith(f"{name}:") for line in lines)
