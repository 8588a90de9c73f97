"""A marketplace that hands out its agent, and computers to install it on: folders with a user, nothing mocked."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from pytest_django import Settings, live_server_helper

from marketplace.accounts import organisations
from marketplace.accounts.models import User
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Provider
from marketplace.portal.install.wheel import build_wheel
from tests.wheels import pip_variables

SCRIPT_SECONDS_MAX = 170
IS_ROOT = os.geteuid() == 0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def pip_settings() -> dict[str, str]:
    """What pip needs on a computer of somebody else's."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    return kept | pip_variables(SYSTEM_PATH)


@dataclass
class Computer:
    """Somebody's machine: where the script writes, and as whom it runs."""

    root: Path
    user: str = ""  # another one than ours
    path: str = SYSTEM_PATH
    options: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.root / "home"

    def run(self, script: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`curl ... | sh -s -- OPTIONS`, with the script as it came."""
        command = ["sh", "-s", "--", *self.options, *options]
        if self.user:
            account = pwd.getpwnam(self.user)
            ids = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
            command = ["setpriv", *ids, *command]
        return subprocess.run(
            command,
            input=script,
            capture_output=True,
            text=True,
            timeout=SCRIPT_SECONDS_MAX,
            check=False,
            cwd="/",
            env={**pip_settings(), "PATH": self.path, "HOME": str(self.home), "TMPDIR": str(self.root / "tmp"), **env},
        )

    def files(self) -> list[str]:
        """Everything that lies on it, but for pip's cache."""
        found = (str(path.relative_to(self.root)) for path in self.root.rglob("*"))
        return sorted(name for name in found if ".cache" not in name and name not in {"home", "tmp"})


def make_computer(user: str = "", options: list[str] | None = None) -> Computer:
    """A new one, in a folder that other users may enter (pytest's own they may not)."""
    root = Path(tempfile.mkdtemp(prefix="souk-computer-", dir="/tmp"))
    root.chmod(0o755)
    computer = Computer(root, user, options=options or [])
    for folder in (computer.home, root / "tmp"):
        folder.mkdir()
        if user:
            shutil.chown(folder, user)
    return computer


@pytest.fixture
def computer() -> Iterator[Computer]:
    """One where nothing was installed."""
    made = make_computer(options=["--user", getpass.getuser()] if IS_ROOT else [])
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


@pytest.fixture(scope="session")
def built_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent's wheel of this code."""
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def wheel(built_wheel: Path, tmp_path: Path) -> Path:
    """A copy that a test may harm."""
    return Path(shutil.copy(built_wheel, tmp_path))


@pytest.fixture
def market(live_server: live_server_helper.LiveServer, wheel: Path, settings: Settings) -> str:
    """The address of a marketplace that publishes `wheel`."""
    url = live_server.url.replace("localhost", "127.0.0.1")
    settings.SOUK_API_URL = settings.SOUK_SYNC_URL = url
    settings.SOUK_AGENT_WHEEL = str(wheel)
    return url


@pytest.fixture
def script(market: str) -> str:
    """install.sh as curl fetches it."""
    return httpx.get(f"{market}/install.sh").raise_for_status().text


@pytest.fixture
def token(market: str) -> str:
    """A fresh one of Bob's."""
    return issue_token()


def issue_token() -> str:
    """Another one of Bob's."""
    user = User.objects.filter(email="bob@example.org").first() or User.objects.create_user("bob@example.org")
    bob = organisations.create(user, f"bob-{uuid.uuid4().hex[:6]}")
    provider = Provider.objects.create(organisation=bob.organisation, display_name="Bob")
    return enrolment.issue_token(provider, actor="test")[1]
