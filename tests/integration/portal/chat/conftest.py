"""Alice's organisation serves a model; Alice talks to it in a browser. A real engine answers over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from jobs.artifacts import choice as stores
from jobs.models import Endpoint
from marketplace.accounts.models import Organisation
from marketplace.portal.chat import page_keys
from marketplace.portal.chat.models import Chat, Message
from tests import stage
from tests.fakes.engine import EngineChild
from tests.integration.jobs.serving import scenes
from tests.stage import DOLLAR

WAIT_SECONDS_MAX = 20.0
EVENTS = {"Accept": "text/event-stream"}


def sign_in(organisation: Organisation) -> Client:
    """A browser of the organisation's first member, which checks for forged requests as in earnest."""
    client = Client()
    client.force_login(organisation.members.first())
    return client


def wait_until(condition: Callable[[], Any]) -> None:
    """Raises TimeoutError."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.02)


def new_chat(client: Client, endpoint: Endpoint, **settings: Any) -> Chat:
    """An empty chat with the endpoint's model."""
    before = set(Chat.objects.values_list("pk", flat=True))
    assert client.post("/chat/new", {"model": str(endpoint.pk)}).status_code == 302
    chat = Chat.objects.exclude(pk__in=before).get()
    if settings:
        assert client.post(f"/chat/{chat.pk}/settings", settings).status_code == 302
    return chat


def ask(client: Client, chat: Chat, text: str) -> Any:
    """The response, whose stream has not been read."""
    return client.post(f"/chat/{chat.pk}/messages", {"text": text}, headers=EVENTS)


def events_of(response: Any) -> list[dict[str, Any]]:
    """Everything that came."""
    data = b"".join(response.streaming_content).decode()
    return [json.loads(block[6:]) for block in data.split("\n\n") if block.startswith("data: ")]


def read_until_text(lines: Iterator[bytes]) -> None:
    """Up to the first event with a part of the answer; that the model is waking comes before, with an empty text."""
    while b'"text": ""' in (line := next(lines)) or b'"text": ' not in line:
        pass


def ask_and_wait(client: Client, chat: Chat, text: str) -> Message:
    """The answer, ended."""
    response = ask(client, chat, text)
    assert response.status_code == 200, response.content
    events_of(response)
    return newest(chat)


def newest(chat: Chat) -> Message:
    """The newest message as it is now."""
    return chat.messages.order_by("-number")[0]


@pytest.fixture(scope="session")
def engine_process() -> Iterator[EngineChild]:
    with EngineChild() as engine:
        yield engine


@pytest.fixture
def engine(engine_process: EngineChild, settings: Any) -> EngineChild:
    """What the gateway's address leads to."""
    engine_process.heal()
    engine_process.call("POST", "/fake/pace", {"first_token_ms": 0, "token_ms": 0})
    settings.SOUK_SERVING_URL = engine_process.base_url
    return engine_process


@pytest.fixture
def alice(transactional_db: None, settings: Any, tmp_path: Any) -> Iterator[Organisation]:
    settings.SOUK_DATA = tmp_path
    stores._store_for.cache_clear()
    page_keys._keys.clear()
    yield stage.organisation("alice", usd_micros=50 * DOLLAR)
    stores._store_for.cache_clear()


@pytest.fixture
def mallory(alice: Organisation) -> Organisation:
    return stage.organisation("mallory")


@pytest.fixture
def endpoint(alice: Organisation) -> Endpoint:
    return scenes.endpoint(alice, model="llm")


@pytest.fixture
def browser(alice: Organisation) -> Client:
    return sign_in(alice)


@pytest.fixture
def chat(browser: Client, endpoint: Endpoint, engine: EngineChild) -> Chat:
    return new_chat(browser, endpoint)
