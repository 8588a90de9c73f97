"""`souk provider add-node --ssh`: asks at this terminal, and shows a line for each machine.

What speaks SSH belongs to the agent and is found through an entry point: the client imports nothing of the agent but
its protocol.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx

from jobs.client.errors import ServerUnreachable, UsageMistake

ENTRY_POINTS = "souk.remote"
SCRIPT_SECONDS_MAX = 30.0


class Terminal:
    """The terminal of this command: asks one question at a time, and shows what each machine prints."""

    def __init__(self, token: Callable[[], str], accepted: Sequence[str], show: Callable[[str, str], None]) -> None:
        self._token, self._accepted, self._show = token, set(accepted), show
        self._turn = threading.Lock()

    def confirm_key(self, machine: str, kind: str, fingerprint: str) -> bool:
        """Only a fingerprint that was given with --host-key, or a yes, is one."""
        import typer

        if fingerprint in self._accepted:
            return True
        with self._turn:
            if not sys.stdin.isatty():
                return False
            typer.echo(f"{machine} is new to you. Its {kind} key is\n  {fingerprint}", err=True)
            return typer.confirm("Is that its key?", default=False, err=True)

    def secret(self, question: str) -> str:
        """A password, not shown."""
        import getpass

        with self._turn:
            return getpass.getpass(f"{question}: ") if sys.stdin.isatty() else ""

    def show_line(self, machine: str, line: str) -> None:
        """Show a line of a machine."""
        self._show(machine, line)

    def token(self) -> str:
        """For one machine."""
        return self._token()


def fetch_script(server: str) -> str:
    """install.sh of the marketplace."""
    try:
        answer = httpx.get(f"{server}/install.sh", timeout=SCRIPT_SECONDS_MAX)
        return answer.raise_for_status().text
    except httpx.HTTPError as error:
        raise ServerUnreachable(f"{server}/install.sh cannot be fetched: {error}") from error


def install_remotely(
    places: Sequence[str],
    *,
    server: str,
    token: Callable[[], str],
    options: Sequence[str],
    port: int | None,
    key: Path | None,
    jump: str,
    as_root: bool,
    host_keys: Sequence[str],
    known_hosts: Path,
    is_quiet: bool,
) -> list[dict[str, str]]:
    """{machine, page, error} of each machine, in their order."""
    installer = _load_installer()
    try:
        machines = [installer.parse_machine(place, port=port, key=key, jump=jump) for place in places]
    except Exception as error:  # of the agent's own kind, which is not imported here
        raise UsageMistake(str(error)) from error
    script = fetch_script(server)
    with _shown([str(machine) for machine in machines], is_quiet) as show:
        outcomes = installer.install_on(
            machines,
            script=script,
            options=options,
            as_root=as_root,
            known_hosts=known_hosts,
            terminal=Terminal(token, host_keys, show),
        )
    return [
        {"machine": each.machine, "page": each.page, "error": each.error, "log": "\n".join(each.lines)}
        for each in outcomes
    ]


def _load_installer() -> Any:
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            return entry.load()
        except ImportError as error:
            raise UsageMistake(f"--ssh needs {error.name or 'paramiko'}: pip install 'gpusouk[remote]'") from error
    raise UsageMistake("--ssh needs the agent's side of gpusouk: pip install 'gpusouk[remote]'")


class _shown:  # noqa: N801 - used as a function
    """A progress line for each machine on a terminal; else a line for each stage, on standard error."""

    def __init__(self, machines: Sequence[str], is_quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_quiet = is_quiet
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[stage]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=self._console, disable=is_quiet)
        self._tasks = {
            name: self._progress.add_task(name, stage="waiting", total=1) for name in dict.fromkeys(machines)
        }
        self._is_live = not is_quiet and self._console.is_terminal
        self._is_started = False

    def __enter__(self) -> Callable[[str, str], None]:
        return self._show

    def __exit__(self, *error: object) -> None:
        if self._is_started:
            self._progress.stop()

    def _show(self, machine: str, line: str) -> None:
        from rich.markup import escape

        if self._is_quiet or not line:
            return
        stage = line.removeprefix("== ").strip()
        if not self._is_live:
            if line.startswith(("== ", "souk: ")) or "FIX" in line or "fix:" in line or "Listed:" in line:
                self._console.print(f"{machine}: {stage}", markup=False)
            return
        if line.startswith("== ") and not self._is_started:  # not before: questions need the terminal for themselves
            self._is_started = True
            self._progress.start()
        if machine in self._tasks and line.startswith(("== ", "souk: ", "   Listed:")):
            self._progress.update(self._tasks[machine], stage=escape(stage[:100]))
