"""/chat: the pages, the answers as they come, and the buttons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import REDIRECT_FIELD_NAME
from django.db import connection
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from marketplace.portal.amounts import dollars
from marketplace.portal.chat import answering, catalogue, keeping, markup
from marketplace.portal.chat.conversations import turns_to_learn
from marketplace.portal.chat.models import Chat, Message
from marketplace.portal.visitors import ORGANISATION_IN_SESSION, Visitor, own_path, page, uuid_of, wants_events

EVENT: Final = "data: {}\n\n"
HEARTBEAT: Final = ": still writing\n\n"


@page("GET")
def chats(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """The list, and a chat to begin."""
    return render(request, "portal/chat/chats.html", frame_of(visitor))


@page("POST")
def new_chat(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Begin one with the chosen model."""
    chat = keeping.begin_chat(visitor, uuid_of(request.POST.get("model", "")))
    return redirect("chat", chat.pk)


@page("GET")
def chat_page(request: HttpRequest, visitor: Visitor, chat_id: UUID) -> HttpResponseBase:
    """One chat, whole."""
    chat = keeping.chat_of(visitor, chat_id)
    answering.end_silent(chat)
    messages = list(chat.messages.order_by("number"))
    for message in messages:
        answering.book_use(message)
    frame = frame_of(visitor)
    model = next((one for one in frame["models"] if one.endpoint_id == chat.endpoint_id), None)
    is_writing = any(message.is_answer and message.ended_at is None for message in messages)
    own = {"chat": chat, "rows": list(map(shown, messages)), "model": model, "is_writing": is_writing}
    return render(request, "portal/chat/chat.html", frame | own | totals_of(chat))


@page("POST")
def change(request: HttpRequest, visitor: Visitor, chat_id: UUID) -> HttpResponseBase:
    """Name, model, system prompt, temperature, length."""
    chat = keeping.change_chat(keeping.chat_of(visitor, chat_id), request.POST.dict())
    return redirect("chat", chat.pk)


@page("POST")
def delete(request: HttpRequest, visitor: Visitor, chat_id: UUID) -> HttpResponseBase:
    """Gone, with all its messages."""
    keeping.delete_chat(keeping.chat_of(visitor, chat_id))
    return redirect("chats")


@page("POST")
def say(request: HttpRequest, visitor: Visitor, chat_id: UUID) -> HttpResponseBase:
    """Ask; the answer as it is written, for our script, or the chat's page for a form."""
    keeping.organisation_that_may_call(visitor)
    chat = keeping.chat_of(visitor, chat_id)
    question, row, answer = answering.start(chat, request.POST.get("text", ""), visitor.user)
    if not wants_events(request):
        return redirect("chat", chat.pk)
    begin = {"question": _html(request, question), "answer": _html(request, row), "id": str(row.pk)}
    begin["title"] = chat.title
    response = StreamingHttpResponse(_events(begin, answer), content_type="text/event-stream")
    response.headers["X-Accel-Buffering"] = "no"
    return response


@page("GET")
def message(request: HttpRequest, visitor: Visitor, chat_id: UUID, message_id: UUID) -> HttpResponseBase:
    """One message as it is now, and what the chat has cost by now."""
    found = keeping.message_of(visitor, chat_id, message_id)
    answering.end_silent(found.chat)
    found.refresh_from_db()
    answering.book_use(found)
    context = {"row": shown(found), "chat": found.chat, "with_totals": True} | totals_of(found.chat)
    return render(request, "portal/chat/message.html", context)


@page("POST")
def stop(request: HttpRequest, visitor: Visitor, chat_id: UUID, message_id: UUID) -> HttpResponseBase:
    """Enough of this answer."""
    answering.stop(keeping.message_of(visitor, chat_id, message_id))
    return HttpResponse(status=204) if request.headers.get("HX-Request") else redirect("chat", chat_id)


@page("POST")
def leave_out(request: HttpRequest, visitor: Visitor, chat_id: UUID, message_id: UUID) -> HttpResponseBase:
    """A bad answer is left out of datasets, or put back."""
    found = keeping.message_of(visitor, chat_id, message_id)
    found.is_left_out = request.POST.get("left_out") == "1"
    found.save(update_fields=["is_left_out"])
    if not request.headers.get("HX-Request"):
        return redirect("chat", chat_id)
    return render(request, "portal/chat/message.html", {"row": shown(found), "chat": found.chat})


@page("GET")
def export(request: HttpRequest, visitor: Visitor, chat_id: UUID) -> HttpResponseBase:
    """One line of JSON: the chat as trainers take it."""
    chat = keeping.chat_of(visitor, chat_id)
    line = json.dumps({"messages": turns_to_learn(chat)}, ensure_ascii=False) + "\n"
    headers = {"Content-Disposition": f'attachment; filename="chat-{chat.pk}.jsonl"'}
    return HttpResponse(line, content_type="application/jsonl; charset=utf-8", headers=headers)


@page("POST")
def choose_organisation(request: HttpRequest, visitor: Visitor) -> HttpResponseBase:
    """Choose one of the user's organisations; then redirect to the page that posted."""
    wanted = request.POST.get("organisation", "")
    if any(str(one.pk) == wanted for one in visitor.organisations):
        request.session[ORGANISATION_IN_SESSION] = wanted
    return redirect(own_path(request.POST.get(REDIRECT_FIELD_NAME, "")))


def frame_of(visitor: Visitor) -> dict[str, Any]:
    """What every page shows beside its content: the chats, and the models to choose from."""
    models = catalogue.models_for(visitor.organisation) if visitor.organisation else []
    listed = keeping.chats_of(visitor)[: keeping.CHATS_SHOWN_MAX] if visitor.organisation else []
    return {"visitor": visitor, "chats": listed, "models": models}


def shown(message: Message) -> dict[str, Any]:
    """A message with what its template needs beside it."""
    return {
        "message": message,
        "html": markup.render(message.text) if message.is_answer else "",
        "price": None if message.cost_usd_micros is None else dollars(message.cost_usd_micros),
        "is_writing": message.is_answer and message.ended_at is None,
        "is_use_awaited": answering.is_use_awaited(message),
    }


def totals_of(chat: Chat) -> dict[str, Any]:
    """Tokens and price of all answers so far."""
    sums = chat.messages.aggregate(read=Sum("input_tokens"), written=Sum("output_tokens"), cost=Sum("cost_usd_micros"))
    return {"tokens": (sums["read"] or 0) + (sums["written"] or 0), "price": dollars(sums["cost"] or 0)}


def _events(begin: dict[str, Any], answer: answering.Answer) -> Iterator[str]:
    """For the browser. A disconnect ends this stream, and not the answer."""
    connection.close()  # back to the pool: this takes as long as the answer
    yield EVENT.format(json.dumps(begin))
    for event in answering.follow(answer):
        yield EVENT.format(json.dumps(event)) if event else HEARTBEAT
    yield EVENT.format(json.dumps({"is_done": True}))


def _html(request: HttpRequest, message: Message) -> str:
    context = {"row": shown(message), "chat": message.chat, "is_followed": True}
    return render(request, "portal/chat/message.html", context).content.decode()
