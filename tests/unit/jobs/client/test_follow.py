"""A followed log is every byte once, whatever happens on the way."""

from __future__ import annotations

import random
import threading
import time

import pytest

from jobs.client.errors import ServerUnreachable, SoukApiError
from jobs.client.follow import follow_stream
from jobs.client.sdk import Souk
from jobs.client.transport import ATTEMPTS_MAX
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import an_attempt
from tests.unit.jobs.client.fake_http import Fault
from tests.unit.jobs.client.fake_server import FakeMarketplace


def text_of(souk: Souk, market: FakeMarketplace, *, follow: bool = True) -> str:
    return "".join(text for _, text in follow_stream(souk, market.job_id, follow=follow, wait_seconds=0.1))


def end(market: FakeMarketplace, *attempts: bytes) -> None:
    """The job has ended with these logs."""
    market.logs = dict(enumerate(attempts, 1))
    market.complete = set(market.logs)
    market.job |= {"state": "completed", "attempts": [an_attempt(number, "bob") for number in market.logs]}


def test_log_of_every_attempt_comes_in_order(souk: Souk, market: FakeMarketplace) -> None:
    end(market, b"one\n", b"", b"three\n")
    market.page_bytes = 2
    assert text_of(souk, market) == "one\nthree\n"


def test_job_that_never_began_has_an_empty_log(souk: Souk, market: FakeMarketplace) -> None:
    market.job["state"] = "cancelled"
    assert text_of(souk, market) == ""


def test_log_that_grows_is_followed_to_the_last_byte_of_the_last_attempt(souk: Souk, market: FakeMarketplace) -> None:
    pieces = [f"line {number}\n".encode() for number in range(30)]

    def write() -> None:
        for attempt in (1, 2, 3):
            market.job["attempts"].append(an_attempt(attempt, "bob"))
            market.logs[attempt] = b""
            for piece in pieces:
                market.logs[attempt] += piece
                time.sleep(random.uniform(0, 0.004))
            if attempt == 3:
                market.job["state"] = "completed"
            market.complete.add(attempt)
            time.sleep(0.05)

    market.page_bytes = 17
    market.faults += [Fault("GET /jobs/", times=4), Fault("GET /jobs/", times=ATTEMPTS_MAX + 2, is_after=True)]
    writer = threading.Thread(target=write)
    writer.start()
    assert text_of(souk, market) == b"".join(pieces).decode() * 3
    writer.join()


def test_without_follow_only_what_is_there_is_printed(run: Run, market: FakeMarketplace) -> None:
    market.job["attempts"] = [an_attempt(1, "bob")]
    market.logs[1] = b"so far\n"
    ended = run("logs", market.job_id)
    assert (ended.status, ended.out) == (0, "so far\n")
    assert run("logs", market.job_id, "--json").json == {"attempt": 1, "text": "so far\n"}


def test_events_can_be_followed_too(run: Run, market: FakeMarketplace) -> None:
    end(market, b"")
    market.events = {1: b'{"event": "step"}\n'}
    assert run("logs", "-f", "--events", market.job_id).out == '{"event": "step"}\n'


def test_rank_that_the_job_never_had_is_refused(souk: Souk, market: FakeMarketplace) -> None:
    market.job["attempts"] = [an_attempt(1, "bob")]
    with pytest.raises(SoukApiError) as caught:
        text_of(souk, market)
    assert caught.value.code == "stream_not_found"


def test_dead_server_ends_a_log_that_is_not_followed(souk: Souk, market: FakeMarketplace) -> None:
    market.faults.append(Fault("GET /jobs/", times=ATTEMPTS_MAX))
    with pytest.raises(ServerUnreachable):
        text_of(souk, market, follow=False)
