"""An answer is written by a thread of its own, so that it is saved whole whether or not a browser still reads it.

begin    the question and the place for its answer, or why not
start    the thread: asks the gateway, saves what comes, ends the row whatever happens
follow   what the thread writes, as events for the browser; leaving costs the answer nothing
stop     passed on through the row, since another process may be the one that writes

A second thread watches: for the user's stop, a deleted chat, and the deadline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max, Sum

from jobs.models import UsageRecord
from marketplace.accounts.models import User
from marketplace.foundation import clock
from marketplace.foundation.errors import SoukError
from marketplace.portal.chat import page_keys
from marketplace.portal.chat.asking import AskingFailed, Question
from marketplace.portal.chat.catalogue import ChatModel, model_of, seconds_to_wake
from marketplace.portal.chat.conversations import turns_for_model
from marketplace.portal.chat.errors import AnswerInProgress, BadSetting, ChatFull, ChatNotFound, NoModel, TooManyAnswers
from marketplace.portal.chat.models import TEXT_CHARACTERS_MAX, Chat, Message

log = logging.getLogger(__name__)

ANSWERS_MAX: Final = 4  # at once in one process: half of its threads may follow one, the others serve pages
ANSWER_SECONDS_MAX: Final = 900.0
MESSAGES_MAX: Final = 400  # of one chat
SAVE_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 0.5
ALIVE_SECONDS: Final = 5.0
SILENT_SECONDS_MAX: Final = 30.0  # after which the process that wrote an answer counts as ended
HEARTBEAT_SECONDS: Final = 10.0  # between two events to the browser, so that one that left is noticed
USE_SECONDS_MAX: Final = 120.0  # until the use of an answer that was broken off is in the books
TITLE_CHARACTERS: Final = 60

CUT_OFF: Final = "The answer was cut off: this site was restarted while it was being written."
LATE: Final = "The answer took too long and was ended."
BROKEN: Final = "Something broke on our side. It was logged; please ask again."


class Answer:
    """An answer that this process writes; what is written so far, for those who follow it."""

    def __init__(self, message_id: UUID) -> None:
        self.message_id = message_id
        self.text, self.note, self.is_done = "", "", False
        self.changed = threading.Condition()

    def emit(self, *, text: str = "", note: str = "") -> None:
        """More of it."""
        with self.changed:
            self.text = (self.text + text)[:TEXT_CHARACTERS_MAX]
            self.note = note
            self.changed.notify_all()

    def end(self) -> None:
        """There is no more."""
        with self.changed:
            self.is_done = True
            self.changed.notify_all()


_places = threading.BoundedSemaphore(ANSWERS_MAX)


def begin(chat: Chat, text: str) -> tuple[Message, Message]:
    """The question as it was asked, and the row of its answer, which is not started yet.

    Raises BadSetting, NoModel, ChatNotFound, ChatFull, AnswerInProgress.
    """
    text = text.strip()
    if not text or len(text) > TEXT_CHARACTERS_MAX or "\x00" in text:
        raise BadSetting(what="A message", expected=f"a text of 1 to {TEXT_CHARACTERS_MAX} characters")
    model = model_of(chat.endpoint_id, chat.organisation)
    if model is None:
        raise NoModel()
    now = clock.now()
    with transaction.atomic():
        if Chat.objects.select_for_update().filter(pk=chat.pk).first() is None:
            raise ChatNotFound()  # it was deleted meanwhile
        end_silent(chat)
        newest = chat.messages.aggregate(number=Max("number"))["number"] or 0
        if newest >= MESSAGES_MAX:
            raise ChatFull(count=newest)
        if chat.messages.filter(role=Message.Role.ASSISTANT, ended_at=None).exists():
            raise AnswerInProgress()
        question = Message.objects.create(chat=chat, number=newest + 1, role=Message.Role.USER, text=text, ended_at=now)
        answer = Message.objects.create(
            chat=chat,
            number=newest + 2,
            role=Message.Role.ASSISTANT,
            model=model.name,
            is_charged=not model.is_own,
            heard_at=now,
        )
        chat.title = chat.title or " ".join(text.split())[:TITLE_CHARACTERS]
        chat.used_at = now
        chat.save(update_fields=["title", "used_at"])
    return question, answer


def start(chat: Chat, text: str, user: User) -> tuple[Message, Message, Answer]:
    """Begin, and write the answer from now on. Raises TooManyAnswers, and what `begin` does."""
    if not _places.acquire(blocking=False):
        raise TooManyAnswers()
    try:
        question, row = begin(chat, text)
        answer = Answer(row.pk)
        threading.Thread(target=_write, args=(answer, chat, user), daemon=True, name="chat-answer").start()
    except BaseException:
        _places.release()
        raise
    return question, row, answer


def follow(answer: Answer) -> Iterator[dict[str, Any]]:
    """What is new, as it comes; an empty event where nothing is. Ends with the answer."""
    seen, note = 0, ""
    until = time.monotonic() + ANSWER_SECONDS_MAX + HEARTBEAT_SECONDS
    while time.monotonic() < until:
        with answer.changed:
            if len(answer.text) == seen and answer.note == note and not answer.is_done:
                answer.changed.wait(HEARTBEAT_SECONDS)
            text, note, is_done = answer.text[seen:], answer.note, answer.is_done
        seen += len(text)
        yield {"text": text, "note": note} if text or note else {}
        if is_done:
            return


def stop(message: Message) -> None:
    """Ask the process that writes it to stop, which takes moments; what is there stays. A repeat changes nothing."""
    Message.objects.filter(pk=message.pk, ended_at=None, stop_asked_at=None).update(stop_asked_at=clock.now())


def end_silent(chat: Chat) -> None:
    """End the answers whose process has ended, so that their chats can continue."""
    before = clock.now() - timedelta(seconds=SILENT_SECONDS_MAX)
    dead = chat.messages.filter(role=Message.Role.ASSISTANT, ended_at=None, heard_at__lt=before)
    dead.update(ended_at=clock.now(), error=CUT_OFF, note="")


def book_use(message: Message) -> None:
    """An answer that was broken off brought no count: what the gateway has booked for it is its count."""
    if message.ended_at is None or message.request_id is None or message.output_tokens is not None:
        return
    booked = UsageRecord.objects.filter(request_id=message.request_id).aggregate(
        read=Sum("input_tokens"), written=Sum("output_tokens"), cost=Sum("cost_usd_micros")
    )
    if booked["written"] is not None:
        message.input_tokens, message.output_tokens = booked["read"], booked["written"]
        message.cost_usd_micros = booked["cost"]
        message.save(update_fields=["input_tokens", "output_tokens", "cost_usd_micros"])


def is_use_awaited(message: Message) -> bool:
    """Its count may still come."""
    if message.ended_at is None or message.request_id is None or message.output_tokens is not None:
        return False
    return clock.now() - message.ended_at < timedelta(seconds=USE_SECONDS_MAX)


# --- the threads


def _write(answer: Answer, chat: Chat, user: User) -> None:
    """The thread: whatever happens, the row ends and the place is free again."""
    ending: dict[str, Any] = {"error": BROKEN}
    try:
        ending = _ask(answer, chat, user)
    except AskingFailed as failure:
        if failure.code == "invalid_api_key":
            page_keys.forget(user, chat.organisation)
        ending = {"error": _storable(str(failure))[:500]}
    except SoukError as error:
        ending = {"error": error.message[:500]}
    except Exception:
        log.exception("A chat's answer could not be written.", extra={"message_id": str(answer.message_id)})
    try:
        _save(answer, note="", ended_at=clock.now(), **ending)
    except Exception:
        log.exception("A chat's answer could not be saved.", extra={"message_id": str(answer.message_id)})
    finally:
        connection.close()
        _places.release()
        answer.end()


def _ask(answer: Answer, chat: Chat, user: User) -> dict[str, Any]:
    """What the row ends with. Raises AskingFailed, SoukError."""
    model = model_of(chat.endpoint_id, chat.organisation)
    if model is None:
        raise NoModel()
    seconds = seconds_to_wake(model.endpoint_id)
    if seconds is not None:
        note = f"{model.label} is waking, about {seconds} s …"
        answer.emit(note=note)
        _save(answer, note=note)
    question = Question(page_keys.key_for(user, chat.organisation), _body(chat, model, answer.message_id))
    if not _is_wanted(answer.message_id):
        return {}
    connection.close()  # goes back to the pool: an answer takes long
    watch = _Watch(answer.message_id, question)
    usage = None
    try:
        saved_at = time.monotonic()
        for piece in question.pieces():
            usage = piece.usage or usage
            answer.emit(text=_storable(piece.text))
            if time.monotonic() - saved_at > SAVE_SECONDS:
                _save(answer, note="", request_id=question.request_id)
                connection.close()
                saved_at = time.monotonic()
    except AskingFailed:
        _save(answer, request_id=question.request_id)
        raise
    finally:
        watch.end()
    ending: dict[str, Any] = {"request_id": question.request_id, "error": LATE if watch.is_late else ""}
    if usage is not None:
        ending |= {
            "input_tokens": usage[0],
            "output_tokens": usage[1],
            "cost_usd_micros": model.cost_usd_micros(*usage),
        }
    return ending


def _is_wanted(message_id: UUID) -> bool:
    """Neither was it stopped nor its chat deleted."""
    return Message.objects.filter(pk=message_id, stop_asked_at=None).exists()


def _save(answer: Answer, **fields: Any) -> None:
    Message.objects.filter(pk=answer.message_id).update(text=answer.text, **fields)


def _storable(text: str) -> str:
    """What an engine wrote, as PostgreSQL keeps it: without NUL, and "?" for half a surrogate pair."""
    return text.encode(errors="replace").decode().replace("\x00", "")


def _body(chat: Chat, model: ChatModel, answer_id: UUID) -> dict[str, Any]:
    earlier = chat.messages.exclude(pk=answer_id).order_by("number")
    return {
        "model": model.name,
        "messages": turns_for_model(chat, earlier),
        "temperature": chat.temperature,
        "max_tokens": min(chat.tokens_max, model.tokens_max),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class _Watch:
    """Closes the request when its user stops it, its chat is deleted, or its time is up."""

    def __init__(self, message_id: UUID, question: Question) -> None:
        self.is_late = False
        self._message_id, self._question = message_id, question
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="chat-watch")
        self._thread.start()

    def end(self) -> None:
        """The answer is complete."""
        self._over.set()
        self._thread.join(ALIVE_SECONDS)

    def _look(self) -> None:
        began = reported = time.monotonic()
        while not self._over.wait(WATCH_SECONDS):
            now = time.monotonic()
            try:
                if now - reported > ALIVE_SECONDS:
                    Message.objects.filter(pk=self._message_id).update(heard_at=clock.now())
                    reported = now
                is_wanted = _is_wanted(self._message_id)
            except Exception:
                log.exception("A chat's answer could not be watched.", extra={"message_id": str(self._message_id)})
                is_wanted = True
            finally:
                connection.close()
            self.is_late = now - began > ANSWER_SECONDS_MAX
            if self.is_late or not is_wanted:
                self._question.break_off()
                return
