"""A chat as questions and their answers, the form in which models and trainings take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from marketplace.portal.chat.models import Chat, Message

Turn = dict[str, str]  # role, content


def turns_for_model(chat: Chat, messages: Iterable[Message]) -> list[Turn]:
    """What the model is sent: a question that got no answer is left out, but for the newest."""
    rows = list(messages)
    newest = [row for row in rows if not row.is_answer][-1:]
    turns = [turn for question, answer in _pairs(rows) for turn in (_turn(question), _turn(answer))]
    return [*_system(chat), *turns, *map(_turn, newest)]


def turns_to_learn(chat: Chat) -> list[Turn]:
    """Good answers and what they answer; empty where there is none."""
    good = [
        (question, answer)
        for question, answer in _pairs(chat.messages.order_by("number"))
        if answer.ended_at is not None and not (answer.error or answer.is_left_out or answer.was_stopped)
    ]
    turns = [turn for question, answer in good for turn in (_turn(question), _turn(answer))]
    return [*_system(chat), *turns] if turns else []


def plain_text(turns: Iterable[Turn]) -> str:
    """As models without a chat template of their own are asked (runtimes/serve/plain_chat.jinja).

    A message of the user begins a new line, and the answer follows it in the same.
    """
    text = ""
    for at, turn in enumerate(turns):
        text += ("\n" if at and turn["role"] != "assistant" else "") + turn["content"]
    return text


def _pairs(messages: Iterable[Message]) -> Iterator[tuple[Message, Message]]:
    """A question and its answer, where the answer has any text."""
    question: Message | None = None
    for message in messages:
        if not message.is_answer:
            question = message
        elif question is not None:
            if message.text:
                yield question, message
            question = None


def _system(chat: Chat) -> list[Turn]:
    return [{"role": "system", "content": chat.system_prompt}] if chat.system_prompt else []


def _turn(message: Message) -> Turn:
    return {"role": str(message.role), "content": message.text}
