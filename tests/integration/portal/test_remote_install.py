"""add-node by SSH, against real OpenSSH servers on loopback. Mallory runs one too."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from examples.market import free_ports
from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import User
from marketplace.accounts.scopes import Scope
from marketplace.nodes.models import Node
from provider_agent.errors import BadConfig
from provider_agent.remote_install import Machine, Outcome, install_on, parse_machine
from tests.integration.portal.conftest import IS_ROOT, pip_settings

SSHD = "/usr/sbin/sshd"
READY_SECONDS, RENDEZVOUS_SECONDS = 10, 20
ME = getpass.getuser()
SUDO_USER = "souk-test-ssh"
PASSWORD = "correct horse"

pytestmark = pytest.mark.skipif(not Path(SSHD).exists(), reason="sshd is not installed (Debian: openssh-server)")


@dataclass
class Bob:
    """At the provider's computer: says yes to the keys he knows, and writes down what he sees."""

    known: Sequence[str] = ()
    says_yes: bool = False
    password: str = ""
    asked: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    tokens: int = 0

    def confirm_key(self, machine: str, kind: str, fingerprint: str) -> bool:
        self.asked.append(fingerprint)
        return self.says_yes or fingerprint in self.known

    def secret(self, question: str) -> str:
        self.asked.append(question)
        return self.password

    def show_line(self, machine: str, line: str) -> None:
        self.lines.append(f"{machine} {line}")

    def token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"


@dataclass
class Shop:
    """Bob's keys, and the machines that take them."""

    folder: Path
    port: int
    log: Path
    fingerprint: str

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def machine(self, user: str = ME, **changes: object) -> Machine:
        return Machine(user, "127.0.0.1", self.port, self.key, **changes)

    def install(
        self, bob: Bob, *machines: Machine, script: str = "id -un", options: Sequence[str] = ()
    ) -> list[Outcome]:
        return install_on(
            machines or (self.machine(),),
            script=script,
            options=options,
            as_root=True,
            known_hosts=self.known_hosts,
            terminal=bob,
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(subprocess.check_output(["mktemp", "-d", "/tmp/souk-ssh-XXXXXX"], text=True).strip())
    made.chmod(0o755)
    keygen(made / "id_ed25519")
    shutil.copy(made / "id_ed25519.pub", made / "authorized")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def shop(folder: Path) -> Iterator[Shop]:
    port = free_ports()
    with sshd(folder, "honest", port) as (log, shown):
        yield Shop(folder, port, log, shown)


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("bob@gpu1", Machine("bob", "gpu1")),
        ("bob@gpu1.example.org:2222", Machine("bob", "gpu1.example.org", 2222)),
        ("bob@[fd00::7]:22", Machine("bob", "fd00::7")),
        ("bob@fd00::7", Machine("bob", "fd00::7")),
    ],
)
def test_places_are_read(text: str, machine: Machine) -> None:
    assert parse_machine(text) == machine


@pytest.mark.parametrize(
    "text",
    ["gpu1", "@gpu1", "bob@", "bob@gpu1; rm -rf /", "bob;rm@gpu1", "-oProxyCommand=x@gpu1", "bob@-x", "bob@gpu1:0",
     "bob@gpu1:99999", "bob@$(id)", "bob@gpu1\n", "b b@gpu1", "bob@gpu1:22:22:"],
)  # fmt: skip
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadConfig):
        parse_machine(text)


def test_an_unknown_key_is_refused_until_it_is_confirmed(shop: Shop) -> None:
    doubtful = Bob()
    (refused,) = shop.install(doubtful)
    assert doubtful.asked == [shop.fingerprint], "as ssh-keygen shows it"
    assert "nobody has confirmed" in refused.error
    assert not shop.known_hosts.exists()
    assert doubtful.tokens == 0
    assert "Accepted publickey" not in shop.log.read_text()

    (done,) = shop.install(Bob(known=[shop.fingerprint]))
    assert (done.error, done.lines) == ("", [ME])
    again = Bob()
    assert shop.install(again)[0].error == ""
    assert again.asked == [], "it is known now"
    assert shop.known_hosts.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_mallory_with_another_key_is_refused_whatever_bob_says(folder: Path, kind: str) -> None:
    port = free_ports()
    with sshd(folder, "honest", port) as (log, shown):
        shop = Shop(folder, port, log, shown)
        assert shop.install(Bob(known=[shown]))[0].error == ""
    before = shop.known_hosts.read_text()
    with sshd(folder, "mallory", port, kind=kind) as (log, _):
        careless = Bob(says_yes=True)
        (refused,) = shop.install(careless)
        assert "REFUSED: the key of" in refused.error
        assert "has changed" in refused.error
        assert careless.asked == []
        assert careless.tokens == 0
        assert "Accepted" not in log.read_text()
    assert shop.known_hosts.read_text() == before


def test_a_jump_leads_there_and_both_keys_are_checked(folder: Path) -> None:
    near, far = free_ports(), free_ports()
    with sshd(folder, "near", near) as (near_log, near_key), sshd(folder, "far", far) as (far_log, far_key):
        shop = Shop(folder, far, far_log, far_key)
        jump = Machine(ME, "127.0.0.1", near, shop.key)
        half = Bob(known=[near_key])
        assert "nobody has confirmed" in shop.install(half, shop.machine(jump=jump))[0].error
        bob = Bob(known=[near_key, far_key])
        (done,) = shop.install(bob, shop.machine(jump=jump), script="echo $SSH_CONNECTION")
        assert done.error == ""
        assert done.lines[0].endswith(f" 127.0.0.1 {far}")
        assert "Accepted publickey" in near_log.read_text()
        assert "Accepted publickey" in far_log.read_text()


def test_a_jump_that_may_not_forward_is_a_sentence(folder: Path) -> None:
    near = free_ports()
    with sshd(folder, "near", near, extra="AllowTcpForwarding no") as (log, shown):
        shop = Shop(folder, free_ports(), log, shown)
        (done,) = shop.install(Bob(known=[shown]), shop.machine(jump=Machine(ME, "127.0.0.1", near, shop.key)))
        assert "does not lead to" in done.error


def test_words_with_shell_in_them_are_inert(shop: Shop) -> None:
    bait = shop.folder / "bait"
    words = [f"x; touch {bait}", f"$(touch {bait})", f"`touch {bait}`", f"'; touch {bait}; '", f"a\ntouch {bait}", "-c"]
    (done,) = shop.install(Bob(says_yes=True), script='for word; do printf "<%s>\\n" "$word"; done', options=words)
    assert done.error == ""
    assert "\n".join(done.lines) == "\n".join(f"<{word}>" for word in words)
    assert not bait.exists()


def test_no_process_list_shows_the_token(shop: Shop) -> None:
    (done,) = shop.install(
        Bob(says_yes=True),
        script='cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" " " | grep -c "[t]oken-1"; echo ${SOUK_ENROL_TOKEN}',
    )
    assert done.lines == ["0", "token-1"]


def test_machines_are_installed_side_by_side(folder: Path) -> None:
    """Each waits for the other: one after the other would never end."""
    ports = [free_ports(), free_ports()]
    meet = f"""touch {folder}/here-$1; for i in $(seq {RENDEZVOUS_SECONDS * 10}); do
        [ $(ls {folder}/here-* | wc -l) = 2 ] && echo met && exit 0; sleep 0.1; done; exit 1"""
    script = f"set -- $SOUK_ENROL_TOKEN; {meet}"
    with sshd(folder, "a", ports[0]) as (log, a), sshd(folder, "b", ports[1]) as (_, b):
        shop = Shop(folder, ports[0], log, a)
        bob = Bob(known=[a, b])
        outcomes = shop.install(bob, shop.machine(), Machine(ME, "127.0.0.1", ports[1], shop.key), script=script)
        assert [(each.error, each.lines[-1]) for each in outcomes] == [("", "met")] * 2
        assert bob.tokens == 2, "each machine has its own"


def test_one_that_is_not_there_stops_none_of_the_others(shop: Shop) -> None:
    nobody_listens = Machine(ME, "127.0.0.1", free_ports(), shop.key)
    silent = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        silent.accept()[0].close()

    threading.Thread(target=hang_up, daemon=True).start()
    hangs_up = Machine(ME, "127.0.0.1", silent.getsockname()[1], shop.key)
    outcomes = shop.install(Bob(says_yes=True), nobody_listens, hangs_up, shop.machine())
    silent.close()
    assert ["cannot be reached" in each.error for each in outcomes] == [True, True, False]
    assert outcomes[2].lines == [ME]


def test_a_key_that_is_not_taken_is_a_sentence(shop: Shop) -> None:
    keygen(shop.folder / "other")
    stranger = Machine(ME, "127.0.0.1", shop.port, shop.folder / "other")
    (done,) = shop.install(Bob(says_yes=True), stranger)
    assert "takes none of your SSH keys; ssh-copy-id" in done.error


def test_a_script_that_fails_says_why(shop: Shop) -> None:
    (done,) = shop.install(Bob(says_yes=True), script="echo souk: no such luck >&2; exit 8")
    assert done.error == "no such luck"


@pytest.mark.skipif(not IS_ROOT or shutil.which("sudo") is None, reason="needs root, to make a user, and sudo")
@pytest.mark.parametrize(
    ("rule", "password", "who", "asked"),
    [
        ("NOPASSWD: ALL", "", "root", 0),
        ("ALL", PASSWORD, "root", 1),
        ("ALL", "", SUDO_USER, 1),
        (None, "", SUDO_USER, 1),
    ],
)
def test_sudo_is_asked_for_only_where_it_is_needed(
    shop: Shop, rule: str | None, password: str, who: str, asked: int
) -> None:
    with sudo_user(rule):
        bob = Bob(known=[shop.fingerprint], password=password)
        (done,) = shop.install(bob, shop.machine(SUDO_USER), script='id -un; echo "$1"', options=["it's"])
        assert (done.error, done.lines[-2:]) == ("", [who, "it's"])
        assert len(bob.asked) - 1 == asked, "one question was about the key"
        if password:
            (refused,) = shop.install(Bob(password="wrong"), shop.machine(SUDO_USER))
            assert "incorrect password" in refused.error


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_command_installs_over_ssh_and_may_be_repeated(market: str, shop: Shop, tmp_path: Path) -> None:
    user = User.objects.create_user("bob@example.org")
    bob = organisations.create(user, "bob")
    scopes = [Scope.PROVIDER_READ, Scope.PROVIDER_WRITE, Scope.JOBS_READ]
    _, key = api_keys.issue(user=user, organisation=bob.organisation, name="test", scopes=scopes)
    env = {**os.environ, **pip_settings(), "HOME": str(tmp_path), "SOUK_SERVER": market, "SOUK_API_KEY": key}
    env.pop("XDG_CONFIG_HOME", None)
    place = ["--ssh", f"{ME}@127.0.0.1", "--port", str(shop.port), "--key", str(shop.key), "--no-root"]
    data, prefix = shop.folder / "data", shop.folder / "prefix"
    options = ["--executor", "process", "--no-start", "--data", str(data), "--prefix", str(prefix), "--user", ME]

    def add_node(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jobs.client.cli", "provider", "add-node", *place, *more, "--", *options]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)

    refused = add_node()
    assert refused.returncode == 6
    assert f"key {shop.fingerprint}, which nobody has confirmed" in refused.stdout
    done = add_node("--host-key", shop.fingerprint)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing into" in done.stderr
    node = Node.objects.get()
    assert json.loads((data / "config.json").read_text())["node_id"] == str(node.pk)
    again = add_node("--json")
    assert again.returncode == 0, again.stdout
    (outcome,) = json.loads(again.stdout)
    assert "keeps its identity" in outcome["log"]
    assert Node.objects.get() == node
    assert (tmp_path / ".config" / "souk" / "known_hosts").exists()


def keygen(path: Path, kind: str = "ed25519") -> str:
    """A key pair; returns the fingerprint as ssh-keygen shows it."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    return subprocess.check_output(["ssh-keygen", "-lf", path], text=True).split()[1]


@contextmanager
def sshd(folder: Path, name: str, port: int, *, kind: str = "ed25519", extra: str = "") -> Iterator[tuple[Path, str]]:
    """A server on loopback; yields its log and its key's fingerprint."""
    shown = keygen(folder / f"host-{name}", kind)
    config, log = folder / f"{name}.conf", folder / f"{name}.log"
    environment = " ".join(f'"{key}={value}"' for key, value in pip_settings().items())
    config.write_text(
        f"""Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host-{name}
PidFile none
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
{f"SetEnv {environment}" if environment else ""}
{extra}
"""
    )
    if IS_ROOT:
        Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-f", config, "-E", log], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + READY_SECONDS
        while "Server listening" not in (log.read_text() if log.exists() else ""):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        yield log, shown
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


@contextmanager
def sudo_user(rule: str | None) -> Iterator[None]:
    """Somebody with a password, and perhaps a rule in sudo's own folder."""
    rules = Path("/etc/sudoers.d") / SUDO_USER
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", SUDO_USER], check=True)
    try:
        subprocess.run(["chpasswd"], input=f"{SUDO_USER}:{PASSWORD}\n", text=True, check=True)
        if rule:
            rules.touch(0o440)
            rules.write_text(f"{SUDO_USER} ALL=(ALL) {rule}\n")
        yield
    finally:
        rules.unlink(missing_ok=True)
        subprocess.run(["userdel", "--remove", "--force", SUDO_USER], check=True, stderr=subprocess.DEVNULL)
