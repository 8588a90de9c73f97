"""The whole way: page, gateway, tunnel, engine, each a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from marketplace.accounts.models import Organisation
from marketplace.portal.chat import page_keys
from tests.fakes.serving_stack import Stack
from tests.integration.jobs.serving import scenes
from tests.integration.portal.chat.conftest import ask, ask_and_wait, new_chat, newest, read_until_text, wait_until


@pytest.fixture
def stack(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """One replica behind a gateway, which knows one key: the page's."""
    folder = tmp_path / "stack"
    folder.mkdir()
    with Stack(folder) as stack:
        replica = stack.start_engine(token_ms=100)
        stack.start_gateway()
        stack.start_provider(replica)
        stack.wait_ready(1)
        settings.SOUK_SERVING_URL = stack.base_url
        monkeypatch.setattr(page_keys, "key_for", lambda user, organisation: stack.key)
        yield stack


def test_an_answer_is_counted_and_a_stopped_one_is_cancelled_at_the_engine(
    browser: Client, alice: Organisation, stack: Stack
) -> None:
    chat = new_chat(browser, scenes.endpoint(alice, model="fake"))
    answer = ask_and_wait(browser, chat, "Hello")
    assert answer.error == ""
    [booked] = stack.usage(1)
    assert (answer.request_id, answer.input_tokens, answer.output_tokens) == (
        booked.request_id,
        booked.input_tokens,
        booked.output_tokens,
    )
    stack.replicas[0].engine.call("POST", "/fake/pace", {"token_ms": 3_000})  # it is stopped long before its end
    stream = iter(ask(browser, chat, "More").streaming_content)
    read_until_text(stream)
    browser.post(f"/chat/{chat.pk}/messages/{newest(chat).pk}/stop")
    wait_until(lambda: stack.replicas[0].engine.stats()["cancelled"] == 1)
    wait_until(lambda: newest(chat).ended_at)
    stopped = newest(chat)
    assert stopped.was_stopped
    assert stopped.request_id == stack.usage(2)[1].request_id
    list(stream)


def test_what_the_gateway_refuses_is_a_sentence(browser: Client, alice: Organisation, stack: Stack) -> None:
    chat = new_chat(browser, scenes.endpoint(alice, model="not-known-there"))
    assert ask_and_wait(browser, chat, "Hello").error == "This model cannot be called any more. Choose another one."


def test_a_key_that_the_gateway_does_not_know_is_replaced(
    browser: Client, alice: Organisation, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = alice.members.get()
    monkeypatch.setattr(page_keys, "key_for", lambda user, organisation: "sk-souk-" + "Mallory" * 6 + "x")
    page_keys._keys[user.pk, alice.pk] = ("sk-souk-old", None)  # type: ignore[assignment]
    chat = new_chat(browser, scenes.endpoint(alice, model="fake"))
    assert "Please ask again" in ask_and_wait(browser, chat, "Hello").error
    assert (user.pk, alice.pk) not in page_keys._keys
