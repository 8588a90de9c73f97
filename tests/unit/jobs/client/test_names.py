"""What a customer types for a job and for a server means what they expect, or asks for what is missing."""

from __future__ import annotations

from importlib.metadata import version
from uuid import UUID

import pytest
import typer

from jobs.client import transport
from jobs.client.commands import jobs as job_commands
from jobs.client.commands.account import _credentials
from jobs.client.settings import normalise
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import a_job
from tests.unit.jobs.client.fake_server import FakeMarketplace

OLDER, OLDEST = (str(UUID(int=number, version=4)) for number in (11, 12))


@pytest.fixture
def three(market: FakeMarketplace) -> FakeMarketplace:
    """Three jobs called `tiny`, the newest first; two of them have ended."""
    market.job |= {"name": "tiny", "state": "completed"}
    market.output = {"model": b"m"}
    market.others = [
        a_job() | {"job_id": OLDER, "name": "tiny", "state": "running"},
        a_job() | {"job_id": OLDEST, "name": "tiny", "state": "failed"},
    ]
    return market


def test_a_name_means_the_newest_job_of_that_name(run: Run, three: FakeMarketplace) -> None:
    assert run("show", "tiny", "--json").json["job_id"] == str(three.job_id)


def test_a_name_of_several_jobs_that_go_on_asks_for_an_id(run: Run, three: FakeMarketplace) -> None:
    three.job |= {"state": "queued"}
    ended = run("cancel", "tiny", "--yes")
    assert (ended.status, OLDER in ended.err, str(three.job_id) in ended.err, OLDEST in ended.err) == (
        2,
        True,
        True,
        False,
    )
    assert "cancel" not in " ".join(three.routes("POST"))


@pytest.mark.parametrize(("state", "status"), [("completed", 0), ("failed", 8), ("cancelled", 9), ("paused", 11)])
def test_wait_leaves_with_how_the_job_ended(
    run: Run, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch, state: str, status: int
) -> None:
    monkeypatch.setattr(job_commands, "WAIT_SECONDS", 0.01)
    market.output = {"model": b"m"}
    views = 0

    def move(market: FakeMarketplace) -> None:
        nonlocal views
        views += 1
        market.job["state"] = state if views > 2 else "running"

    market.on_job = move
    ended = run("wait", market.job_id, "--json")
    assert (ended.status, ended.json["state"]) == (status, state)


def test_the_command_says_its_version(run: Run) -> None:
    ended = run("--version")
    assert (ended.status, ended.out) == (0, f"souk {version('gpusouk')}\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("souk.example", "https://souk.example"),
        ("souk.example:8443", "https://souk.example:8443"),
        ("localhost:8000", "http://localhost:8000"),
        ("127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("https://localhost:8000", "https://localhost:8000"),
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
    ],
)
def test_a_server_may_be_given_without_its_scheme(given: str, expected: str) -> None:
    assert normalise(given) == expected


def test_a_server_without_tls_is_named_as_such(
    run: Run, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ATTEMPTS_MAX", 1)
    ended = run("balance", "--server", market.url.replace("http://", "https://"))
    assert (ended.status, "begins with http://" in ended.err) == (5, True)


def test_a_new_password_is_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def prompt(text: str, *, hide_input: bool, confirmation_prompt: bool) -> str:
        asked.append((text, confirmation_prompt))
        return "secret"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    _credentials("alice@example.org", password_stdin=False, is_new=True)
    _credentials("alice@example.org", password_stdin=False)
    assert asked == [("Password", True), ("Password", False)]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shells_can_complete_commands(run: Run, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_SOUK_COMPLETE", f"source_{shell}")
    ended = run()
    assert ended.status == 0
    assert "_SOUK_COMPLETE" in ended.out


def test_a_job_that_ended_is_done_again_under_a_new_id(run: Run, three: FakeMarketplace) -> None:
    ended = run("retry", "tiny", "--yes", "--json")
    assert (ended.status, ended.json["state"]) == (0, "queued")
    assert ended.json["job_id"] != str(three.job_id)
    assert three.routes("POST") == [f"/api/v1/jobs/{three.job_id}/retry"]
    assert run("retry", "tiny").status == 2, "nobody is there to confirm"
