"""Installs the agent on machines through SSH, from the provider's own computer: the marketplace never holds a key.

The same install.sh runs there that a person would paste. A host key that is unknown is refused until a person confirms
its fingerprint, one that changed always. Every word of a command is quoted; token and password go through standard
input, so that no process list shows them.

1 connect, through the jump if there is one, one machine after the other: each may need an answer
2 find out who we are there, and whether sudo is needed      3 run the script, all machines side by side
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import paramiko

from provider_agent.errors import BadConfig, HostKeyRefused, RemoteFailed

MACHINES_MAX: Final = 64
CONNECT_SECONDS_MAX: Final = 15.0
AUTH_SECONDS_MAX: Final = 30.0
SILENT_SECONDS_MAX: Final = 900.0  # a first start may build an environment with torch, without output
INSTALL_SECONDS_MAX: Final = 3600.0
SHORT_SECONDS_MAX: Final = 20.0
KEEPALIVE_SECONDS: Final = 15
LINE_BYTES_MAX: Final = 64 * 1024
LAST_LINES: Final = 30
SSH_PORT: Final = 22

USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}\Z")
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]+\Z")


@dataclass(frozen=True)
class Machine:
    """Where to install, and how to get there."""

    user: str
    host: str
    port: int = SSH_PORT
    key: Path | None = None
    jump: Machine | None = None

    def __str__(self) -> str:
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != SSH_PORT else "")

    @property
    def known_as(self) -> str:
        """Its name in known_hosts."""
        return self.host if self.port == SSH_PORT else f"[{self.host}]:{self.port}"


class Terminal(Protocol):
    """The terminal at the provider's computer."""

    def confirm_key(self, machine: str, kind: str, fingerprint: str) -> bool:
        """Whether this is the machine's key indeed."""

    def secret(self, question: str) -> str:
        """A password; empty if no person is there or none is needed."""

    def show_line(self, machine: str, line: str) -> None:
        """One line of what happens there."""

    def token(self) -> str:
        """A fresh enrolment token."""


@dataclass
class Outcome:
    """How it went on one machine."""

    machine: str
    error: str = ""
    page: str = ""
    lines: list[str] = field(default_factory=list)


def parse_machine(text: str, *, port: int | None = None, key: Path | None = None, jump: str = "") -> Machine:
    """USER@HOST[:PORT] (IPv6 in brackets); raises BadConfig for what is no such thing."""
    user, at, place = text.rpartition("@")
    host, after = place, ""
    if place.startswith("["):
        host, _, after = place[1:].partition("]")
        after = after.removeprefix(":")
    elif place.count(":") == 1:
        host, _, after = place.partition(":")
    if not at or not USER.match(user) or not HOST.match(host) or (after and not after.isdigit()):
        raise BadConfig(f"{text!r} is no USER@HOST or USER@HOST:PORT.")
    number = int(after) if after else port or SSH_PORT
    if not 0 < number < 65536:
        raise BadConfig(f"{text!r}: a port is a number from 1 to 65535.")
    return Machine(user, host, number, key, replace(parse_machine(jump), key=key) if jump else None)


def install_on(
    machines: Sequence[Machine],
    *,
    script: str,
    options: Sequence[str],
    as_root: bool,
    known_hosts: Path,
    terminal: Terminal,
) -> list[Outcome]:
    """Install on each; what goes wrong on one stops none of the others."""
    if len(machines) > MACHINES_MAX:
        raise BadConfig(f"At most {MACHINES_MAX} machines at once.")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(max(len(machines), 1)) as pool:
        outcomes, running = [], []
        for machine in machines:
            outcome = Outcome(str(machine))
            outcomes.append(outcome)
            try:
                client = stack.enter_context(_connected(machine, known_hosts, terminal))
                sudo = _how_to_be_root(client, machine, terminal) if as_root else _Sudo([])
                token = terminal.token()
            except (HostKeyRefused, RemoteFailed) as error:
                outcome.error = str(error)
                continue
            install = functools.partial(_install, script=script, options=options, sudo=sudo, token=token)
            running.append(pool.submit(install, client, outcome, terminal=terminal))
        for each in running:
            each.result()
    return outcomes


@dataclass(frozen=True)
class _Sudo:
    """What comes before a command so that root runs it, and what sudo reads first."""

    words: list[str]
    password: str = field(default="", repr=False)


class _AskFirst(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Unknown keys are shown, and kept only when a person confirmed them; a known machine's other key is refused."""

    def __init__(self, machine: Machine, known_hosts: Path, terminal: Terminal) -> None:
        self._machine, self._known_hosts, self._terminal = machine, known_hosts, terminal

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        if client.get_host_keys().lookup(hostname) is not None:  # known, by a key of another kind
            raise HostKeyRefused(_changed(self._machine, key, self._known_hosts))
        shown = fingerprint(key)
        if not self._terminal.confirm_key(str(self._machine), key.get_name(), shown):
            raise HostKeyRefused(
                f"{self._machine} has the {key.get_name()} key {shown}, which nobody has confirmed. Compare it on the "
                "machine (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then confirm, or give --host-key."
            )
        self._known_hosts.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._known_hosts.open("a") as file:
            file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")
        self._known_hosts.chmod(0o600)


def fingerprint(key: Any) -> str:
    """As ssh-keygen -l shows it: SHA256:..."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


@contextlib.contextmanager
def _connected(machine: Machine, known_hosts: Path, terminal: Terminal) -> Iterator[Any]:
    """A signed-in client; raises HostKeyRefused before anything of ours was sent to a machine that is not the one."""
    with contextlib.ExitStack() as stack:
        through = None
        if machine.jump is not None:
            jump = stack.enter_context(_connected(machine.jump, known_hosts, terminal))
            try:
                through = jump.get_transport().open_channel(
                    "direct-tcpip", (machine.host, machine.port), ("127.0.0.1", 0), timeout=CONNECT_SECONDS_MAX
                )
            except paramiko.SSHException as error:
                raise RemoteFailed(f"{machine.jump} does not lead to {machine}: {error}") from error
        client = paramiko.SSHClient()
        stack.callback(client.close)
        if known_hosts.exists():
            client.load_host_keys(str(known_hosts))
        client.set_missing_host_key_policy(_AskFirst(machine, known_hosts, terminal))
        terminal.show_line(str(machine), "connecting")
        _sign_in(client, machine, through=through, known_hosts=known_hosts, terminal=terminal)
        client.get_transport().set_keepalive(KEEPALIVE_SECONDS)
        yield client


def _sign_in(
    client: Any, machine: Machine, *, through: Any, known_hosts: Path, terminal: Terminal, passphrase: str = ""
) -> None:
    try:
        client.connect(
            machine.host,
            machine.port,
            machine.user,
            sock=through,
            key_filename=str(machine.key) if machine.key else None,
            passphrase=passphrase or None,
            allow_agent=machine.key is None,
            look_for_keys=machine.key is None,
            timeout=CONNECT_SECONDS_MAX,
            banner_timeout=CONNECT_SECONDS_MAX,
            auth_timeout=AUTH_SECONDS_MAX,
        )
    except paramiko.BadHostKeyException as error:
        raise HostKeyRefused(_changed(machine, error.key, known_hosts)) from error
    except paramiko.PasswordRequiredException as error:
        given = "" if passphrase or through else terminal.secret(f"Passphrase of {machine.key or 'your SSH key'}")
        if not given:
            raise RemoteFailed(f"{machine}: the SSH key is locked; ssh-add it, then try again.") from error
        _sign_in(client, machine, through=through, known_hosts=known_hosts, terminal=terminal, passphrase=given)
    except paramiko.AuthenticationException as error:
        raise RemoteFailed(
            f"{machine} takes none of your SSH keys; ssh-copy-id {machine.user}@{machine.host}, or give --key."
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise RemoteFailed(f"{machine} cannot be reached: {error or type(error).__name__}") from error


def _how_to_be_root(client: Any, machine: Machine, terminal: Terminal) -> _Sudo:
    """Nothing for root; sudo if it needs no password; else sudo with the password, if one is given."""
    if _ask(client, "id -u") == "0":
        return _Sudo([])
    if _ask(client, "sudo -n true && echo yes") == "yes":
        return _Sudo(["sudo", "-n"])
    if _ask(client, "command -v sudo"):
        password = terminal.secret(f"Password for sudo on {machine}, empty to install for {machine.user} alone")
        if "\n" not in password and password:
            return _Sudo(["sudo", "-S", "-p", ""], password)
    return _Sudo([])


def _install(
    client: Any, outcome: Outcome, *, script: str, options: Sequence[str], sudo: _Sudo, token: str, terminal: Terminal
) -> None:
    first = f"{sudo.password}\n" if sudo.password else ""
    text = f"{first}SOUK_ENROL_TOKEN={shlex.quote(token)}; export SOUK_ENROL_TOKEN\n{script}"
    try:
        status = _run(client, shlex.join([*sudo.words, "sh", "-s", "--", *options]), text, outcome, terminal)
    except (paramiko.SSHException, OSError, EOFError) as error:
        outcome.error = f"The connection broke off ({error or type(error).__name__}). Run the same command again."
        return
    if status != 0:
        said = [line.removeprefix("souk: ") for line in outcome.lines if line.startswith(("souk: ", "sudo: "))]
        outcome.error = said[-1] if said else f"install.sh ended with {status}"


def _run(client: Any, command: str, text: str, outcome: Outcome, terminal: Terminal) -> int:
    """The exit status; every line is shown as it comes, the last ones are kept."""
    until = time.monotonic() + INSTALL_SECONDS_MAX
    channel = client.get_transport().open_session(timeout=CONNECT_SECONDS_MAX)
    channel.settimeout(SILENT_SECONDS_MAX)
    channel.set_combine_stderr(True)
    channel.exec_command(command)
    channel.sendall(text.encode())
    channel.shutdown_write()
    with channel.makefile("r") as output:
        while line := output.readline(LINE_BYTES_MAX):
            clean = "".join(character for character in line.rstrip() if character.isprintable())
            outcome.lines = [*outcome.lines[-LAST_LINES + 1 :], clean]
            if clean.strip().startswith("Listed: "):
                outcome.page = clean.strip().removeprefix("Listed: ")
            terminal.show_line(outcome.machine, clean)
            if time.monotonic() > until:
                raise TimeoutError(f"not done after {INSTALL_SECONDS_MAX:.0f} s")
    return int(channel.recv_exit_status())


def _ask(client: Any, command: str) -> str:
    """What a short command prints; nothing if it fails. The command is ours, without anybody's words in it."""
    try:
        _, output, _ = client.exec_command(command, timeout=SHORT_SECONDS_MAX)
        answer: str = output.read(LINE_BYTES_MAX).decode(errors="replace").strip()
    except (paramiko.SSHException, OSError) as error:
        raise RemoteFailed(f"The machine does not answer: {error or type(error).__name__}") from error
    return answer


def _changed(machine: Machine, key: Any, known_hosts: Path) -> str:
    return (
        f"REFUSED: the key of {machine} has changed, it is now {key.get_name()} {fingerprint(key)}. Somebody may "
        f"stand in between. If the machine was installed anew, remove the line {machine.known_as} from {known_hosts}."
    )
