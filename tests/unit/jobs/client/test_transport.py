"""Requests are repeated where that is safe, wait as the server asks, and carry the key to nobody else."""

from __future__ import annotations

import socket
import time

import pytest

from jobs.client import transport
from jobs.client.errors import NotSignedIn, ServerUnreachable, SoukApiError
from jobs.client.sdk import Souk
from jobs.client.transport import ATTEMPTS_MAX
from tests.unit.jobs.client.fake_answers import a_job
from tests.unit.jobs.client.fake_http import Fault, Refusal
from tests.unit.jobs.client.fake_server import KEY, FakeMarketplace


def test_lost_connections_are_tried_again(souk: Souk, market: FakeMarketplace) -> None:
    market.faults.append(Fault("GET /balance", times=ATTEMPTS_MAX - 1))
    assert souk.balance().available_usd_micros == 5
    assert len(market.asked) == ATTEMPTS_MAX


def test_after_the_last_attempt_the_server_is_unreachable(souk: Souk, market: FakeMarketplace) -> None:
    market.faults.append(Fault("GET /balance", times=ATTEMPTS_MAX))
    with pytest.raises(ServerUnreachable, match="does not answer"):
        souk.balance()


def test_nobody_there_is_unreachable(market: FakeMarketplace) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with Souk(f"http://127.0.0.1:{port}", KEY) as souk, pytest.raises(ServerUnreachable):
        souk.balance()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_busy_server_is_asked_again_when_it_says(souk: Souk, market: FakeMarketplace, status: int) -> None:
    market.faults.append(Fault("GET /balance", status=status, headers={"Retry-After": "1"}))
    begun = time.monotonic()
    assert souk.balance().available_usd_micros == 5
    assert time.monotonic() - begun >= 1


def test_server_that_stays_busy_says_so(souk: Souk, market: FakeMarketplace) -> None:
    market.faults.append(Fault("GET /balance", times=ATTEMPTS_MAX, status=429))
    with pytest.raises(SoukApiError) as caught:
        souk.balance()
    assert (caught.value.status, caught.value.code) == (429, "busy")


@pytest.mark.parametrize("status", [400, 404, 409, 500])
def test_other_errors_are_raised_at_once(souk: Souk, market: FakeMarketplace, status: int) -> None:
    market.faults.append(Fault("GET /balance", status=status))
    with pytest.raises(SoukApiError):
        souk.balance()
    assert len(market.asked) == 1


def test_repeated_post_keeps_its_idempotency_key(souk: Souk, market: FakeMarketplace) -> None:
    market.faults.append(Fault("POST /jobs/", times=3, is_after=True))
    souk.cancel(market.job_id)
    keys = {asked.headers["idempotency-key"] for asked in market.asked}
    assert (len(market.asked), len(keys), market.effects) == (4, 1, [f"/jobs/{market.job_id}/cancel"])


def test_each_post_has_its_own_idempotency_key(souk: Souk, market: FakeMarketplace) -> None:
    souk.cancel(market.job_id)
    souk.cancel(market.job_id)
    assert len({asked.headers["idempotency-key"] for asked in market.asked}) == 2


def test_key_that_the_server_does_not_take_is_not_signed_in(market: FakeMarketplace) -> None:
    with Souk(market.url, "souk_wrong") as souk, pytest.raises(NotSignedIn):
        souk.balance()


def test_a_server_without_curves_has_an_empty_one(souk: Souk, market: FakeMarketplace) -> None:
    assert souk.curve(market.job_id).series == []


def test_the_curve_of_no_job_is_an_error(souk: Souk, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refusal(404, "job_not_found", "There is no such job.")

    monkeypatch.setattr(market, "answer", refuse)
    with pytest.raises(SoukApiError, match="no such job"):
        souk.curve(market.job_id)


def test_redirect_is_not_followed(souk: Souk, market: FakeMarketplace) -> None:
    market.faults.append(Fault("GET /balance", status=302, headers={"Location": "http://mallory.example/"}))
    with pytest.raises(SoukApiError, match="sends elsewhere"):
        souk.balance()


def test_every_page_of_a_list_is_read(souk: Souk, market: FakeMarketplace) -> None:
    market.others = [a_job() for _ in range(6)]
    assert len({job.job_id for job in souk.jobs()}) == 7
    assert len(souk.jobs(limit=3)) == 3


def test_link_to_the_next_page_cannot_lead_the_key_elsewhere(souk: Souk, market: FakeMarketplace) -> None:
    with FakeMarketplace() as mallory:
        market.others = [a_job() for _ in range(3)]
        address, market.url = market.url, mallory.url
        assert len(souk.jobs()) == 4
        assert mallory.asked == []
        market.url = address


def test_backoff_is_jittered_and_bounded() -> None:
    assert all(0 <= transport.backoff_seconds(attempt) <= transport.BACKOFF_SECONDS_MAX for attempt in range(1, 200))


def test_key_shows_in_no_representation(souk: Souk) -> None:
    assert KEY not in repr(souk.transport) + repr(vars(souk))
