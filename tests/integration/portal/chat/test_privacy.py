"""A chat is its user's: others get 404, operators see counts, models' words never run, the erased leave nothing."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from django.test import Client

from marketplace.accounts.erasure import erase
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.portal.chat import answering, page_keys
from marketplace.portal.chat.errors import ChatNotFound
from marketplace.portal.chat.models import Chat, Message
from marketplace.portal.visitors import CONTENT_SECURITY_POLICY
from tests.fakes.engine import EngineChild
from tests.integration.portal.chat.conftest import ask, ask_and_wait, read_until_text, sign_in, wait_until

ATTACK = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> [a](javascript:alert(3)) `<b>` **<i>**\n```\n</code><script>"
)


def say(chat: Chat, text: str, answer: str) -> Message:
    """As if it had been written."""
    _, row = answering.begin(chat, text)
    Message.objects.filter(pk=row.pk).update(text=answer, ended_at=row.created_at)
    return row


def test_what_a_model_says_is_shown_and_never_run(browser: Client, chat: Chat) -> None:
    say(chat, ATTACK, ATTACK)
    Chat.objects.filter(pk=chat.pk).update(title=ATTACK, system_prompt=ATTACK)
    page = browser.get(f"/chat/{chat.pk}")
    text = page.content.decode()
    tags = set(re.findall(r"<(script|img|b|i)\b[^>]*>", text))
    assert tags == {"script"}
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert "onerror" not in re.sub(r"&lt;.*?&gt;", "", text)
    assert page.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_pages_hold_no_script_or_style_that_the_policy_would_forbid(browser: Client, chat: Chat) -> None:
    say(chat, "Hello", "Hi")
    for path in ("/chat", f"/chat/{chat.pk}", "/chat/datasets"):
        text = browser.get(path).content.decode()
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*src=)", text), path
        assert re.findall(r"(?:src|href)=[\"'](?!#|/)([^\"']*)", text) == [], path


def test_another_users_chat_is_not_there(chat: Chat, mallory: Organisation, alice: Organisation) -> None:
    row = say(chat, "My secret", "Safe")
    colleague = User.objects.create_user("carol@example.org")
    Membership.objects.create(organisation=alice, user=colleague, role=Role.OWNER)
    near = Client()
    near.force_login(colleague)
    for client in (sign_in(mallory), near):
        base = f"/chat/{chat.pk}"
        tries = [
            client.get(base),
            client.get(f"{base}/export.jsonl"),
            client.get(f"{base}/messages/{row.pk}"),
            client.post(f"{base}/messages", {"text": "Hi"}),
            client.post(f"{base}/messages/{row.pk}/stop"),
            client.post(f"{base}/messages/{row.pk}/left-out", {"left_out": "1"}),
            client.post(f"{base}/settings", {"title": "Mine"}),
            client.post(f"{base}/delete"),
        ]
        assert {each.status_code for each in tries} <= {403, 404}
        assert all(b"My secret" not in each.content for each in [*tries, client.get("/chat")])
    assert chat.messages.count() == 2
    row.refresh_from_db()
    assert row.stop_asked_at is None


def test_who_left_the_organisation_left_its_chats(browser: Client, chat: Chat, alice: Organisation) -> None:
    Membership.objects.filter(organisation=alice).delete()
    assert browser.get(f"/chat/{chat.pk}").status_code == 404
    assert browser.get("/chat").status_code == 200


def test_a_forged_request_is_refused(alice: Organisation, chat: Chat) -> None:
    victim = Client(enforce_csrf_checks=True)
    victim.force_login(alice.members.first())
    for path in ("/chat/new", f"/chat/{chat.pk}/messages", f"/chat/{chat.pk}/delete", "/chat/datasets", "/signout"):
        assert victim.post(path, {"text": "Hi"}).status_code == 403, path
    assert Chat.objects.filter(pk=chat.pk).exists()


def test_nothing_of_a_chat_is_logged(browser: Client, chat: Chat, caplog: pytest.LogCaptureFixture, engine) -> None:
    caplog.set_level(logging.DEBUG)
    browser.post(f"/chat/{chat.pk}/settings", {"title": "TOPSECRET-title", "system_prompt": "TOPSECRET-prompt"})
    ask_and_wait(browser, chat, "TOPSECRET-question")
    engine.fail("garbage", tokens=2)
    ask_and_wait(browser, chat, "TOPSECRET-question")
    own = [each for each in caplog.records if not each.name.startswith("django.db")]
    assert all("TOPSECRET" not in each.getMessage() and "TOPSECRET" not in str(each.exc_text) for each in own)
    assert "TOPSECRET" not in str(chat)


def test_operators_see_counts_and_no_words(browser: Client, chat: Chat, db: None) -> None:
    say(chat, "My secret", "Safe")
    operator = Client()
    operator.force_login(User.objects.create_superuser("root@example.org"))
    for path in ("/admin/portal/chat/", f"/admin/portal/chat/{chat.pk}/change/"):
        page = operator.get(path)
        assert page.status_code == 200
        assert b"My secret" not in page.content


def test_the_erased_leave_no_chat(browser: Client, chat: Chat, alice: Organisation) -> None:
    say(chat, "My secret", "Safe")
    erase(alice.members.first().pk)
    assert not Chat.objects.exists()
    assert not Message.objects.exists()


def test_a_chat_that_is_deleted_while_it_is_answered_stops_the_engine(
    browser: Client, chat: Chat, engine: EngineChild
) -> None:
    engine.call("POST", "/fake/pace", {"token_ms": 3_000})
    before = engine.stats()["cancelled"]
    stream = iter(ask(browser, chat, "Hello").streaming_content)
    read_until_text(stream)
    assert browser.post(f"/chat/{chat.pk}/delete").status_code == 302
    wait_until(lambda: engine.stats()["cancelled"] == before + 1)
    list(stream)
    assert not Message.objects.exists()


def test_a_chat_that_was_deleted_before_it_was_asked_is_not_found(chat: Chat) -> None:
    Chat.objects.filter(pk=chat.pk).delete()
    with pytest.raises(ChatNotFound):
        answering.begin(chat, "Hello")


def test_a_chat_that_was_deleted_before_its_question_left_asks_nothing(
    browser: Client, chat: Chat, engine: EngineChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted_meanwhile(*args: Any) -> str:
        Chat.objects.all().delete()
        return "key"

    monkeypatch.setattr(page_keys, "key_for", deleted_meanwhile)
    before = engine.stats()["requests"]
    list(ask(browser, chat, "Hello").streaming_content)
    assert engine.stats()["requests"] == before


def test_a_deleted_chat_is_gone(browser: Client, chat: Chat) -> None:
    say(chat, "Hello", "Hi")
    assert browser.post(f"/chat/{chat.pk}/delete").status_code == 302
    assert not Message.objects.exists()
