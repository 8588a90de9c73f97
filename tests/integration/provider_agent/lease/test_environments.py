"""What requirements installed is found again by a later job of the same customer, and by nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from provider_agent.executors import landlock
from provider_agent.protocol import Program, Reason
from tests.fakes.package_index import PackageIndex, package_index
from tests.fakes.wheels import make_wheel
from tests.integration.provider_agent.conftest import Bob, eventually
from tests.integration.provider_agent.endings import until_ended
from tests.integration.provider_agent.fake_leases import Lease
from tests.integration.provider_agent.fake_server import FakeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALICE, CAROL = "a" * 32, "c" * 32
USES_IT = "souk_toy && python -c 'import souk_toy; print(souk_toy.__file__)'"
FOUND, KEPT = "environment of 1 package found on this node", "kept in this node's cache for later jobs of yours"


@pytest.fixture
def running(bob: Bob) -> Bob:
    """Bob's node, enrolled and started."""
    bob.enrol()
    bob.start()
    return bob


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    """Has the toy."""
    name, wheel = make_wheel("souk_toy", "1.0", "def main(): print('ran the toy')\n")
    with package_index({name: wheel}) as made:
        yield made


class Jobs:
    """Jobs with requirements on Bob's node."""

    def __init__(self, bob: Bob, server: FakeServer, index: PackageIndex) -> None:
        self.bob, self.server, self.url = bob, server, index.url

    def give(
        self, owner: str, line: str = USES_IT, *, requirements: str = "souk-toy==1.0\n", setup: list[str] | None = None
    ) -> Lease:
        input_id = uuid4()
        self.server.downloads[input_id] = {"requirements.txt": requirements.encode()}
        program = Program(command=["bash", "-c", line], requirements="requirements.txt", setup=setup)
        env = {"PIP_INDEX_URL": self.url, "PIP_RETRIES": "0"}
        changes = {"program": program, "input_artifact_id": input_id, "cache_owner": owner, "env": env}
        return self.server.give(self.bob.assignment(**changes))

    def log(self, owner: str, line: str = USES_IT, **changes: str) -> str:
        """Of a job that ended well."""
        lease = self.give(owner, line, **changes)
        assert until_ended(lease).reason is Reason.COMPLETED, lease.logs
        self.forget(lease)
        return lease.logs.decode()

    def forget(self, lease: Lease) -> None:
        """So that it no longer holds what its customer has in the cache."""
        self.server.forget_lease(lease)
        eventually(lambda: not self.bob.folder.lease(lease.assignment.lease_id).exists(), "the forgetting")

    def fails(self, owner: str, **changes: str) -> bool:
        """Whether its requirements cannot be installed."""
        report = until_ended(self.give(owner, **changes))
        return report.reason is Reason.EXIT_NONZERO and report.message.startswith("requirements ended")

    def entries(self) -> list[Path]:
        return sorted(self.bob.folder.cache.glob("[!.]*/*/*"))


@pytest.fixture
def jobs(running: Bob, server: FakeServer, index: PackageIndex) -> Jobs:
    return Jobs(running, server, index)


def test_a_later_job_of_the_same_customer_installs_nothing(jobs: Jobs, index: PackageIndex) -> None:
    first = jobs.log(ALICE)
    assert "ran the toy" in first
    assert f"{KEPT}: environment of 1 package" in first
    index.close()
    second = jobs.log(ALICE)
    assert f"[souk] {FOUND} (" in second
    assert "\nran the toy\n" in second, "also its script, in another folder"
    assert second.splitlines()[-1] != first.splitlines()[-1], "each attempt has an environment of its own"
    assert "/work/.environment/lib/" in second
    assert "Collecting" not in second and "Installing" not in second
    assert jobs.fails(CAROL), "another customer finds none"
    assert jobs.fails(ALICE, requirements="souk-toy\n"), "nor do other requirements"
    names = {file.path for artifact in jobs.server.artifacts.values() for file in artifact.begin.files}
    assert names == set(), "it is no output"


def test_a_damaged_entry_is_made_anew(jobs: Jobs) -> None:
    jobs.log(ALICE)
    [entry] = jobs.entries()
    path = entry / "environment.tar"
    path.chmod(0o644)
    content = path.read_bytes()
    path.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    second = jobs.log(ALICE)
    assert "[souk] the environment kept on this node is not used: its digest is another one than when it was" in second
    assert "ran the toy" in second
    assert KEPT in second
    assert FOUND in jobs.log(ALICE)


def test_what_the_command_writes_into_its_environment_is_not_kept(jobs: Jobs) -> None:
    evil = "import souk_toy; open(souk_toy.__file__, 'w').write('def main(): print(666)')"
    lease = jobs.give(ALICE, f'python -c "{evil}"; souk_toy; echo mine > "$VIRTUAL_ENV/mine"; exit 7')
    assert until_ended(lease).exit_code == 7
    assert b"666" in lease.logs
    assert KEPT.encode() in lease.logs, "that the command failed says nothing of its packages"
    second = jobs.log(ALICE, f'{USES_IT}; test ! -e "$VIRTUAL_ENV/mine"')
    assert FOUND in second
    assert "\nran the toy\n" in second


def test_a_command_that_changes_the_archive_and_says_its_digest_leaves_nothing(jobs: Jobs) -> None:
    packs = (
        "cd .souk-cache/environment/*; echo more >> environment.tar;"
        ' echo "[souk] environment of 1 package packed: sha256 $(sha256sum environment.tar | cut -c-64)"'
    )
    log = jobs.log(ALICE, packs)
    assert log.count("[souk] environment of 1 package packed: sha256 ") == 2
    assert "environment not kept in this node's cache: the program changed it" in log
    assert jobs.entries() == []


def test_a_command_reads_and_leaves_nothing_but_its_environment(jobs: Jobs) -> None:
    key = "1" * 64
    makes = "; ".join(
        f"mkdir -p .souk-cache/{kind}/{key}; echo {{}} > .souk-cache/{kind}/{key}/MANIFEST.json"
        for kind in ("tokens", "environment")
    )
    assert jobs.log(ALICE, makes).count(KEPT) == 1
    [entry] = jobs.entries()
    assert (entry.parent.name, entry.name == key) == ("environment", False)
    tokens = jobs.bob.folder.cache / ALICE / "tokens" / key
    tokens.mkdir(parents=True)
    (tokens / "data").write_text("of a training")
    log = jobs.log(ALICE, f'test -z "$SOUK_CACHE_DIR"; cat {tokens}/data; echo mine > {entry}/more || echo refused')
    assert FOUND in log
    if landlock.is_available():
        assert "of a training" not in log
        assert "refused" in log


def test_who_is_stopped_while_packages_are_installed_leaves_none(jobs: Jobs, index: PackageIndex) -> None:
    index.answers.clear()
    lease = jobs.give(ALICE)
    eventually(lambda: index.requests, "pip")
    jobs.server.stop_lease(lease, Reason.CANCELLED_BY_CUSTOMER)
    assert until_ended(lease).reason is Reason.CANCELLED_BY_CUSTOMER
    assert jobs.entries() == []
    index.answers.set()


def test_why_none_is_kept_is_in_the_log(jobs: Jobs) -> None:
    log = jobs.log(ALICE, requirements=f"--find-links {jobs.url}\nsouk-toy==1.0\n")
    assert "[souk] the environment is not kept on this node: the requirements name files, addresses or variables" in log
    assert jobs.entries() == []
