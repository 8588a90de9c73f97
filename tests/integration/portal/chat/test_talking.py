"""Alice writes, a model answers: streamed, saved, counted, stopped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client

from jobs.endpoints.publish import short_name
from jobs.models import Endpoint, UsageRecord
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.foundation import clock
from marketplace.portal.chat import answering
from marketplace.portal.chat.asking import AskingFailed, Piece, Question
from marketplace.portal.chat.models import Chat, Message
from tests import stage
from tests.fakes.engine import EngineChild
from tests.integration.portal.chat.conftest import (
    ask,
    ask_and_wait,
    events_of,
    new_chat,
    newest,
    read_until_text,
    sign_in,
    wait_until,
)


def test_an_answer_comes_as_it_is_written_and_is_saved_with_its_price(
    browser: Client, chat: Chat, engine: EngineChild
) -> None:
    events = events_of(ask(browser, chat, "What is a souk?"))
    assert "What is a souk?" in events[0]["question"]
    assert events[-1] == {"is_done": True}
    answer = newest(chat)
    assert answer.text == "".join(event.get("text", "") for event in events)
    assert answer.output_tokens == 20
    assert answer.cost_usd_micros == answer.input_tokens + 2 * answer.output_tokens  # at 1 and 2 dollars a million
    page = browser.get(f"/chat/{chat.pk}").content.decode()
    assert f"{answer.input_tokens} tokens read, 20 written" in page
    assert "not charged: your own model" in page
    assert "<h1>What is a souk?</h1>" in page


def test_the_model_is_sent_the_settings_and_the_earlier_messages(
    browser: Client, chat: Chat, engine: EngineChild
) -> None:
    settings = {"system_prompt": "Be brief.", "temperature": "0.25", "tokens_max": "7", "title": "Souks"}
    assert browser.post(f"/chat/{chat.pk}/settings", settings).status_code == 302
    first = ask_and_wait(browser, chat, "One")
    ask_and_wait(browser, chat, "Two")
    sent = engine.requests()[-1]
    assert [(each["role"], each["content"]) for each in sent["body"]["messages"]] == [
        ("system", "Be brief."),
        ("user", "One"),
        ("assistant", first.text),
        ("user", "Two"),
    ]
    assert (sent["body"]["temperature"], sent["body"]["max_tokens"]) == (0.25, 7)


def test_the_gateway_is_given_a_key_that_no_browser_sees(browser: Client, chat: Chat, engine: EngineChild) -> None:
    body = b"".join(ask(browser, chat, "Hello").streaming_content)
    key = {name.lower(): value for name, value in engine.requests()[-1]["headers"].items()}["authorization"]
    assert key.startswith("Bearer sk-souk-")
    assert b"sk-souk-" not in body + browser.get(f"/chat/{chat.pk}").content


def test_an_answer_is_saved_though_its_reader_left(browser: Client, chat: Chat, engine: EngineChild) -> None:
    engine.call("POST", "/fake/pace", {"token_ms": 10})
    response = ask(browser, chat, "Hello")
    next(iter(response.streaming_content))
    response.close()
    wait_until(lambda: newest(chat).ended_at)
    answer = newest(chat)
    assert (answer.output_tokens, answer.error) == (20, "")
    assert answer.text


def test_stop_ends_the_answer_at_the_engine_and_keeps_what_was_written(
    browser: Client, chat: Chat, engine: EngineChild
) -> None:
    engine.call("POST", "/fake/pace", {"token_ms": 3_000})
    before = engine.stats()["cancelled"]
    response = ask(browser, chat, "Tell me everything")
    stream = iter(response.streaming_content)
    read_until_text(stream)
    answer = newest(chat)
    assert browser.post(f"/chat/{chat.pk}/messages/{answer.pk}/stop").status_code == 302
    wait_until(lambda: newest(chat).ended_at)
    wait_until(lambda: engine.stats()["cancelled"] == before + 1)
    answer.refresh_from_db()
    assert answer.was_stopped
    assert answer.text
    assert answer.error == ""
    list(stream)


def test_a_stopped_answer_is_priced_by_what_the_gateway_booked(browser: Client, chat: Chat) -> None:
    _, row = answering.begin(chat, "Hello")

    request_id, now = uuid4(), clock.now()
    Message.objects.filter(pk=row.pk).update(request_id=request_id, ended_at=now, stop_asked_at=now, text="So")
    assert "counting" in browser.get(f"/chat/{chat.pk}").content.decode()
    UsageRecord.objects.create(
        gateway_id=uuid4(), seq=1, request_id=request_id, part=0, key_id=uuid4(), organisation_id=uuid4(),
        owner_id=uuid4(), endpoint_id=uuid4(), version=1, model="llm", kind="chat", status="cancelled",
        input_tokens=11, cached_tokens=0, output_tokens=3, cost_usd_micros=17, at=now, received_at=now,
    )  # fmt: skip
    page = browser.get(f"/chat/{chat.pk}").content.decode()
    assert "11 tokens read, 3 written" in page
    assert "$0.000017" in page


def test_too_many_answers_at_once_are_refused_with_a_sentence(
    browser: Client, chat: Chat, endpoint: Endpoint, engine: EngineChild
) -> None:
    engine.call("POST", "/fake/pace", {"token_ms": 2_000})
    chats = [chat, *(new_chat(browser, endpoint) for _ in range(answering.ANSWERS_MAX))]
    open_answers = [ask(browser, each, "Hello") for each in chats[: answering.ANSWERS_MAX]]
    refused = ask(browser, chats[-1], "Me too")
    assert refused.status_code == 503
    assert "Too many answers" in refused.json()["message"]
    assert refused.headers["Retry-After"] == "5"
    assert not chats[-1].messages.exists()
    engine.call("POST", "/fake/pace", {"token_ms": 0})
    for response in open_answers:
        events_of(response)
    assert ask_and_wait(browser, chats[-1], "Me too").output_tokens == 20


def test_one_answer_at_a_time_in_a_chat(browser: Client, chat: Chat, engine: EngineChild) -> None:
    engine.call("POST", "/fake/pace", {"token_ms": 2_000})
    response = ask(browser, chat, "Hello")
    refused = ask(browser, chat, "And?")
    assert (refused.status_code, refused.json()["message"][:27]) == (409, "The model is still answerin")
    engine.call("POST", "/fake/pace", {"token_ms": 0})
    events_of(response)


def test_an_answer_whose_process_died_does_not_block_its_chat(browser: Client, chat: Chat) -> None:
    answering.begin(chat, "Hello")
    Message.objects.filter(chat=chat, ended_at=None).update(heard_at=clock.now() - timedelta(minutes=5))
    assert ask_and_wait(browser, chat, "Again").output_tokens == 20
    assert "was cut off" in browser.get(f"/chat/{chat.pk}").content.decode()


def test_a_gateway_that_is_away_is_reported_in_a_sentence(browser: Client, chat: Chat, settings) -> None:
    settings.SOUK_SERVING_URL = "http://127.0.0.1:9"
    answer = ask_and_wait(browser, chat, "Hello")
    assert answer.error.startswith("The model cannot be reached")


def test_a_stream_that_breaks_keeps_its_beginning_and_says_so(browser: Client, chat: Chat, engine: EngineChild) -> None:
    engine.fail("cut", tokens=3)
    answer = ask_and_wait(browser, chat, "Hello")
    assert answer.text
    assert answer.error.startswith("The answer was cut off")


def test_letters_that_no_text_has_cost_an_answer_themselves_alone(
    browser: Client, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pieces(question: Question) -> Iterator[Piece]:
        yield Piece("half \ud83d and \x00zero")
        raise AskingFailed("The model refused: \x00\udc00.")

    monkeypatch.setattr(Question, "pieces", pieces)
    answer = ask_and_wait(browser, chat, "Hello")
    assert (answer.text, answer.error) == ("half ? and zero", "The model refused: ?.")
    assert answer.ended_at is not None


def test_a_sleeping_model_is_shown_as_waking(browser: Client, chat: Chat, engine: EngineChild) -> None:
    notes = [event["note"] for event in events_of(ask(browser, chat, "Hello")) if event.get("note")]
    assert not notes or "is waking, about" in notes[0]
    engine.call("POST", "/fake/pace", {"first_token_ms": 700})
    notes = [event["note"] for event in events_of(ask(browser, chat, "Hello")) if event.get("note")]
    assert "llm is waking, about" in notes[0]


def test_without_scripts_the_form_leads_back_to_the_chat(browser: Client, chat: Chat) -> None:
    answer = browser.post(f"/chat/{chat.pk}/messages", {"text": "Hello"})
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/chat/{chat.pk}")
    wait_until(lambda: newest(chat).ended_at)


def test_public_models_of_others_and_the_sites_own_can_be_chosen(
    alice: Organisation, endpoint: Endpoint, settings, engine: EngineChild
) -> None:
    carol = stage.organisation("carol", usd_micros=stage.DOLLAR)
    browser = sign_in(carol)
    name = f"{short_name(alice)}/llm"
    assert name in browser.get("/chat").content.decode()
    settings.SOUK_CHAT_MODEL = name
    assert "Souk Chat" in browser.get("/chat").content.decode()
    chat = new_chat(browser, endpoint)
    assert "cost $1.00 to read and $2.00 to write" in browser.get(f"/chat/{chat.pk}").content.decode()
    answer = ask_and_wait(browser, chat, "Hello")
    assert engine.requests()[-1]["body"]["model"] == name
    assert answer.is_charged


def test_who_only_pays_bills_may_not_call_models(alice: Organisation, chat: Chat) -> None:
    dave = User.objects.create_user("dave@example.org")
    Membership.objects.create(organisation=alice, user=dave, role=Role.BILLING)
    client = Client()
    client.force_login(dave)
    refused = client.post("/chat/new", {})
    assert refused.status_code == 403
    assert "Your role" in refused.content.decode()
