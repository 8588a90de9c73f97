"""Alice's terminal before the real API, which answers in this process; and a marketplace that says something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest
from django.test import Client

from jobs.client import cli
from tests.integration.billing.chain.escrow_shell import Ended

URL = "http://souk.test"
Lie = Callable[[str, Any], Any]  # path, the true answer -> what is sent


class ThisProcess(httpx.BaseTransport):
    """Requests to the marketplace are answered here, in the test's own transaction; others go where they say."""

    def __init__(self) -> None:
        self.lies: list[Lie] = []
        self.asked: list[tuple[str, bool]] = []  # path, whether a key came along
        self._others = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != urlsplit(URL).hostname:
            return self._others.handle_request(request)
        key = request.headers.get("authorization")
        headers = {"Authorization": key} if key else {}
        self.asked.append((request.url.path, bool(headers)))
        path = request.url.raw_path.decode()
        answer = Client(SERVER_NAME="localhost").generic(request.method, path, headers=headers)
        if answer.status_code != 200 or not self.lies:
            return httpx.Response(answer.status_code, content=answer.content, headers={"Content-Type": "a/json"})
        body = json.loads(answer.content)
        for lie in self.lies:
            body = lie(request.url.path.removeprefix("/api/v1"), body)
        return httpx.Response(200, json=body)


@dataclass
class Shell:
    """One member's terminal."""

    owner: UUID
    market: ThisProcess
    capsys: pytest.CaptureFixture[str]
    lies: list[Lie] = field(init=False)

    def __post_init__(self) -> None:
        self.lies = self.market.lies

    def run(self, *words: object) -> Ended:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main([str(word) for word in words])
        out, err = self.capsys.readouterr()
        return Ended(int(left.value.code or 0), out, err)

    def verify(self, *words: object) -> Ended:
        return self.run("solvency", "--verify", "--json", *words)
