"""One marketplace for all acceptance tests: real processes, reached by their public addresses only."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from examples.market import Market, Party
from tests.acceptance.customer import WITHOUT_CHECKS_AND_CHAIN
from tests.wheels import pip_variables

SHARED, GANGS = "the shared marketplace", "the gangs' marketplace"
# These start a marketplace of their own. One that is missing here only waits for the shared one's worker.
HAVE_THEIR_OWN = ("test_behind_nat.py", "test_checks.py", "test_serving.py", "test_updates.py")
TRAIN_IN_GANGS = ("test_generations.py", "test_kill_schedules.py")  # their racks take minutes to be listed
BEGIN_FIRST = (  # the longest
    "tests/acceptance/test_serving.py",
    SHARED,
    GANGS,
    "tests/acceptance/test_updates.py",
    "tests/acceptance/test_behind_nat.py",
)
LOG_CHARACTERS = 6000  # of the end of each log


class OneSharedMarketplace(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """One worker gets every file that uses the shared marketplace, one all gangs; other files are given out one by one.

    Otherwise each worker that gets one of them starts a marketplace, installs its agents, and keeps both to the end.
    Gangs have one apart, since together they would take a worker longer than all others take for the rest.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = Path(super()._split_scope(nodeid))
        is_own = path.name in HAVE_THEIR_OWN or "acceptance" not in path.parts
        if is_own:
            return str(path)
        return GANGS if path.name in TRAIN_IN_GANGS else SHARED

    def _assign_work_unit(self, node: WorkerController) -> None:
        for scope in reversed(BEGIN_FIRST):
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """For `pytest --dist loadfile`."""
    return OneSharedMarketplace(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def packages_from_a_folder() -> Iterator[None]:
    """Nodes that install by install.sh, and update themselves, take the agent's packages from a folder."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in pip_variables(os.environ["PATH"]).items():
            patch.setenv(variable, value)
        yield


def forget_servers_of_pytest(patch: pytest.MonkeyPatch) -> None:
    """So that `souk up` starts its own. Another marketplace of this worker's may have forgotten them before."""
    if os.environ.get("SOUK_TEST_SERVERS") == "embedded":
        for variable in ("DATABASE_URL", "REDIS_URL"):
            patch.delenv(variable, raising=False)


@contextlib.contextmanager
def start_market(**env: str) -> Iterator[Market]:
    """`souk up` in a temporary folder, without nodes."""
    # Not pytest's own folders: as root PostgreSQL runs as another user, which may not enter those.
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="souk-acceptance-", dir="/tmp") as name,
    ):
        forget_servers_of_pytest(patch)
        with Market(Path(name), env=env) as running:
            yield running
        assert running.left == [], "everything ends when the marketplace gets the signal to stop"


@pytest.fixture(scope="session")
def market() -> Iterator[Market]:
    """One with two nodes of different prices."""
    with start_market(**WITHOUT_CHECKS_AND_CHAIN) as running:
        running.add_node("cheap", price="0.30")
        running.add_node("dear", price="0.60")
        yield running


@pytest.fixture
def alice(market: Market) -> Party:
    """A customer with five dollars, new for each test, and each try of it."""
    party = market.sign_up(f"alice-{secrets.token_hex(6)}")
    market.deposit(party, "5.00")
    return party


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed shows the ends of the logs of its marketplace and agents: their folder is gone with the session."""
    report = yield
    add = getattr(report.longrepr, "addsection", None)  # what it adds is shown of a test that is tried again, too
    if report.failed and add is not None:
        arguments = [getattr(each, "market", each) for each in item.funcargs.values()]  # type: ignore[attr-defined]
        for market in {each for each in arguments if isinstance(each, Market)}:
            for log in sorted(market.folder.glob("*.log")):
                add(f"end of {log.name}", log.read_text(errors="replace")[-LOG_CHARACTERS:])
    return report
