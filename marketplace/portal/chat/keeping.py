"""A user's chats: begin one, find it, change its settings, delete it. Other users' chats are never found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from django.db.models import QuerySet

from marketplace.accounts.models import Organisation
from marketplace.accounts.scopes import Scope
from marketplace.portal.chat.catalogue import model_of, models_for
from marketplace.portal.chat.errors import BadSetting, ChatNotFound, NoModel, NotAllowedHere, TooManyChats
from marketplace.portal.chat.models import TEXT_CHARACTERS_MAX, TITLE_CHARACTERS_MAX, Chat, Message
from marketplace.portal.visitors import Visitor, uuid_of

CHATS_MAX: Final = 1_000  # of one user
CHATS_SHOWN_MAX: Final = 200
TEMPERATURE_MAX: Final = 2.0
TOKENS_MAX: Final = 1 << 20  # jobs.spec.kinds.serve.TOKENS_OUT_MAX


def chats_of(visitor: Visitor) -> QuerySet[Chat]:
    """Their own, in the name of the organisation that they act for; the one used last first."""
    return Chat.objects.filter(user=visitor.user, organisation=visitor.organisation).select_related("organisation")


def chat_of(visitor: Visitor, chat_id: UUID) -> Chat:
    """One of them. Raises ChatNotFound in the same way for a missing chat and for another user's."""
    chat = chats_of(visitor).filter(pk=chat_id).first()
    if chat is None:
        raise ChatNotFound()
    return chat


def message_of(visitor: Visitor, chat_id: UUID, message_id: UUID) -> Message:
    """A message of one of them. Raises ChatNotFound."""
    message = Message.objects.select_related("chat").filter(pk=message_id, chat=chat_of(visitor, chat_id)).first()
    if message is None:
        raise ChatNotFound()
    return message


def organisation_that_may_call(visitor: Visitor) -> Organisation:
    """In whose name models are called: that costs money. Raises NotAllowedHere."""
    if visitor.organisation is None or not visitor.may(Scope.JOBS_WRITE):
        raise NotAllowedHere()
    return visitor.organisation


def begin_chat(visitor: Visitor, endpoint_id: UUID | None) -> Chat:
    """An empty chat with this model, or with the first that there is. Raises NotAllowedHere, TooManyChats, NoModel."""
    organisation = organisation_that_may_call(visitor)
    count = Chat.objects.filter(user=visitor.user).count()
    if count >= CHATS_MAX:
        raise TooManyChats(count=count)
    model = model_of(endpoint_id, organisation) if endpoint_id else next(iter(models_for(organisation)), None)
    if model is None:
        raise NoModel()
    chat = Chat(user=visitor.user, organisation=organisation, endpoint_id=model.endpoint_id)
    chat.tokens_max = min(chat.tokens_max, model.tokens_max)
    chat.save()
    return chat


def change_chat(chat: Chat, given: Mapping[str, str]) -> Chat:
    """New settings, of those that are given. Raises BadSetting, NoModel."""
    if "title" in given:
        chat.title = _text(given["title"], "The name", TITLE_CHARACTERS_MAX)
    if "system_prompt" in given:
        chat.system_prompt = _text(given["system_prompt"], "The system prompt", TEXT_CHARACTERS_MAX)
    if "temperature" in given:
        chat.temperature = _number(given["temperature"], "The temperature", 0, TEMPERATURE_MAX)
    if "tokens_max" in given:
        chat.tokens_max = int(_number(given["tokens_max"], "The longest answer", 1, TOKENS_MAX))
    if "model" in given:
        model = model_of(uuid_of(given["model"]), chat.organisation)
        if model is None:
            raise NoModel()
        chat.endpoint_id = model.endpoint_id
    chat.save(update_fields=["title", "system_prompt", "temperature", "tokens_max", "endpoint"])
    return chat


def delete_chat(chat: Chat) -> None:
    """Delete it and all its messages; an answer that is being written is stopped."""
    chat.delete()


def _text(text: str, what: str, most: int) -> str:
    text = text.strip()
    if len(text) > most or "\x00" in text:
        raise BadSetting(what=what, expected=f"a text of at most {most} characters")
    return text


def _number(text: str, what: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise BadSetting(what=what, expected=f"a number from {least:g} to {most:g}")
    return number
