"""`souk rollback`: by the API's path, by the old one of an older marketplace, and under its own old name."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from jobs.client.errors import SoukApiError
from jobs.client.sdk import Souk
from jobs.endpoints.errors import EndpointNotFound
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import an_endpoint
from tests.unit.jobs.client.fake_http import Refusal
from tests.unit.jobs.client.fake_server import FakeMarketplace


class Serving:
    """The fake marketplace's one endpoint, whose version can be rolled back by the paths given."""

    def __init__(self, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch) -> None:
        self.endpoint, self.paths = an_endpoint("my-llm"), {"rollback", "take-back"}
        self.rolled_back: list[str] = []
        answer = market.answer

        def answer_too(asked: Any) -> Any:
            path = asked.path.removeprefix("/api/v1")
            if path == "/endpoints":
                return {"next": None, "previous": None, "results": [self.endpoint]}
            verb = path.rsplit("/", 1)[-1]
            if path == f"/endpoints/{self.endpoint['endpoint_id']}/{verb}" and verb in self.paths:
                self.rolled_back.append(verb)
                return self.endpoint
            if asked.method == "POST" and path.startswith("/endpoints/") and verb in self.paths:
                raise Refusal(404, EndpointNotFound.code, "There is no such endpoint.")
            return answer(asked)

        monkeypatch.setattr(market, "answer", answer_too)


@pytest.fixture
def serving(market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch) -> Serving:
    return Serving(market, monkeypatch)


def test_rollback_asks_for_the_version_before(run: Run, serving: Serving) -> None:
    ended = run("rollback", "my-llm", "--yes", "--json")
    assert (ended.status, ended.json["model"], ended.err) == (0, "my-llm", "")
    assert serving.rolled_back == ["rollback"]


def test_an_older_marketplace_is_asked_by_its_own_path(run: Run, serving: Serving) -> None:
    serving.paths = {"take-back"}
    assert run("rollback", "my-llm", "--yes").status == 0
    assert serving.rolled_back == ["take-back"]


def test_an_endpoint_that_is_not_there_is_asked_for_once(souk: Souk, market: FakeMarketplace, serving: Serving) -> None:
    with pytest.raises(SoukApiError, match="no such endpoint"):
        souk.rollback(uuid4())
    assert len(market.routes("POST")) == 1


def test_the_old_name_still_works_and_names_the_new_one(run: Run, serving: Serving) -> None:
    ended = run("take-back", "my-llm", "--yes", "--json")
    assert (ended.status, ended.json["model"], serving.rolled_back) == (0, "my-llm", ["rollback"])
    assert "`souk rollback`" in ended.err
    assert "take-back" not in run("--help").out and "rollback" in run("--help").out


def test_the_old_method_still_works_and_warns(souk: Souk, serving: Serving) -> None:
    with pytest.warns(DeprecationWarning, match=r"Souk\.rollback"):
        souk.take_back(serving.endpoint["endpoint_id"])
    assert serving.rolled_back == ["rollback"]
