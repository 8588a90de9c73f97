"""Records as text, with what a model learns of it: of a conversation the answers, of a text all.

    {"text": ...}                                      a text
    {"messages": [{"role": ..., "content": ...}, ...]} a conversation; {"conversations": [{"from", "value"}]} too
    {"prompt": ..., "completion": ...}                 two texts, or two lists of messages
    {"instruction": ..., "input": ..., "output": ...}  a question and its answer; `input` may be missing

A conversation is written by the chat template that came with the model, by the customer's, or by chat.jinja. Which part
of that text is an answer is found by writing the conversation up to it: with the mark that an answer begins, and with
the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from runtimes.contract import TOKENIZER_FILE
from runtimes.train.data.documents import Record
from runtimes.train.data.tokenizer import first_ids
from runtimes.train.errors import BadConfig, BadData

OWN_TEMPLATE: Final = Path(__file__).parent / "chat.jinja"
TEMPLATE_BYTES_MAX: Final = 1 << 20
MESSAGES_MAX: Final = 2000  # of one conversation: each answer is written twice
ANSWERS: Final = "assistant"
ROLES: Final = {
    **dict.fromkeys(("system", "developer", "user", ANSWERS, "tool", "function", "ipython")),  # as they are
    **dict.fromkeys(("gpt", "chatgpt", "model", "bot", "bing", "bard"), ANSWERS),
    "human": "user",
    "observation": "tool",
}
# Some templates write the day, and resumed trainings and the nodes of a gang must have the same tokens: it is the day
# that Llama's take where they are told none.
WRITTEN_ON: Final = datetime(2024, 7, 26)
DAY: Final = re.compile(r"strftime_now\(\s*['\"]([^'\"]{0,100})['\"]")
SAME_DAY: Final = "{%- macro strftime_now(format) %}{{ souk_days[format] }}{%- endmacro -%}"
KINDS: Final = '"text", "messages", "conversations", "prompt" and "completion", or "instruction" and "output"'

Span = tuple[int, int]  # characters, from and up to
Message = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A text, and the parts of it that a model learns to write. `passed_over`: answers that are none of them."""

    text: str
    learned: tuple[Span, ...]
    passed_over: int = 0


def is_text(record: Record) -> bool:
    """Whether it is a text to be learned whole; raises BadData for a record of no known kind."""
    if (kind := _is_text(record)) is not None:
        return kind
    if is_pair(record):
        raise BadData(
            f"{record} is a pair of answers, chosen and rejected: name dpo in the train section to learn from it"
        )
    raise BadData(f"{record} has none of {KINDS}")


def _is_text(record: Record) -> bool | None:
    """True for a text, False for a conversation, None for what is neither."""
    value = record.value
    if isinstance(value, str):
        return True
    if isinstance(_first(value, "messages", "conversations"), list) or _has(value, "prompt", "completion"):
        return False
    if _has(value, "instruction", "output"):  # beside a text that was made of them, as Alpaca has it
        return False
    return True if isinstance(value.get("text"), str) else None


def is_pair(record: Record) -> bool:
    """Whether it has an answer that is preferred and one that is not (pairs.py)."""
    return _has(record.value, "chosen", "rejected") if isinstance(record.value, dict) else False


def text_of(record: Record) -> str:
    """All that it says, for a tokenizer that learns from it, and for its size; raises BadData."""
    if is_pair(record) and _is_text(record) is None:  # a text or a conversation may have such columns, too
        value: dict[str, Any] = record.value if isinstance(record.value, dict) else {}
        return "\n".join(_said(record, value.get(key)) for key in ("prompt", "chosen", "rejected"))
    if is_text(record):
        return record.value if isinstance(record.value, str) else str(record.value["text"])
    return "\n".join(str(message["content"]) for part in _parts(record) for message in part)


class Conversations:
    """Writes conversations by a chat template."""

    def __init__(self, tokenizer: Any, template: str, *, is_own: bool, learns_inputs: bool, begin: str = "") -> None:
        """`tokenizer`: of transformers. `is_own`: the template did not come with the model, so it leaves with it.

        `begin`: the tokens that the tokenizer puts before each text; a template writes them itself.
        """
        self._tokenizer, self._template, self._learns_inputs, self._begin = tokenizer, template, learns_inputs, begin
        self._is_own, self._is_used = is_own, False
        self._days = {asked: WRITTEN_ON.strftime(asked) for asked in DAY.findall(template)}

    @property
    def kept_template(self) -> str | None:
        """What leaves with the model: the template, if it did not come with it and something was written by it."""
        return self._template if self._is_own and self._is_used else None

    def write(self, record: Record) -> Example:
        """The conversation as text; raises BadData that names the line."""
        parts = _parts(record)
        if isinstance(record.value, dict) and isinstance(record.value.get("prompt"), str):
            prompt, completion = (str(part[0]["content"]) for part in parts)
            asked = self._begin + prompt
            text = asked + completion + str(self._tokenizer.eos_token or "")
            return Example(text, ((0 if self._learns_inputs else len(asked), len(text)),))
        messages, tools = [message for part in parts for message in part], self._tools(record)
        whole = self._text(record, messages, tools)
        if self._learns_inputs:
            return Example(whole, ((0, len(whole)),))
        first = len(parts[0]) if len(parts) > 1 else 0  # a prompt's own answers are not learned
        spans = tuple(self._spans(record, messages, tools, whole, first))
        answers = sum(message["role"] == ANSWERS for message in messages[max(first, 1) :])
        return Example(whole, spans, answers - len(spans))

    def _spans(self, record: Record, messages: list[Message], tools: Any, whole: str, first: int) -> Iterator[Span]:
        """Where the answers stand in `whole`, each with the end that the template puts behind it.

        Some write an answer in another way when others follow, without what the model thought: it is found by its
        words and the end of the last one.
        """
        end = self._end_of_last(record, messages, tools, whole)
        for number, message in enumerate(messages):
            if message["role"] != ANSWERS or number < max(first, 1):
                continue
            before = self._text(record, messages[:number], tools, begins_answer=True)
            after = whole if number == len(messages) - 1 else self._text(record, messages[: number + 1], tools)
            said = str(message["content"]).strip() + end
            if whole.startswith(before) and whole.startswith(after) and len(after) > len(before):
                yield len(before), len(after)
            elif whole.startswith(before) and end and whole[len(before) :].startswith(said):
                yield len(before), len(before) + len(said)

    def _end_of_last(self, record: Record, messages: list[Message], tools: Any, whole: str) -> str:
        """What the template writes behind the last message, if that is an answer."""
        said = str(messages[-1]["content"]).strip()
        return whole.rpartition(said)[2] if messages[-1]["role"] == ANSWERS and said else ""

    def _text(self, record: Record, messages: list[Message], tools: Any, *, begins_answer: bool = False) -> str:
        self._is_used = True
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages,
                    tools=tools,
                    chat_template=SAME_DAY + self._template,
                    tokenize=False,
                    add_generation_prompt=begins_answer,
                    souk_days=self._days,
                )
            )
        except Exception as error:  # a template raises what it likes
            raise BadData(f"{record}: the chat template refuses the conversation: {error!s:.200}") from error

    @staticmethod
    def _tools(record: Record) -> Any:
        tools = _parsed(record.value.get("tools")) if isinstance(record.value, dict) else None
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise BadData(f'{record}: "tools" must be a list of objects')
        return tools or None


def open_conversations(
    tokenizer: Tokenizer, folder: Path | None, *, end_id: int, template_path: Path | None, learns_inputs: bool
) -> Conversations:
    """By the template in `template_path`, else the one in the model's folder, else chat.jinja. Raises BadData."""
    import transformers

    hugging_face: Any = transformers  # partly untyped
    end = tokenizer.id_to_token(end_id)
    whole: Any = None
    if folder is not None and (folder / TOKENIZER_FILE).is_file():
        try:
            whole = hugging_face.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # there is nothing that a stranger's settings do not raise
            raise BadData(f"the model's tokenizer cannot be loaded: {error!s:.200}") from error
    if whole is None or whole.eos_token is None:
        template = whole.chat_template if whole is not None else None
        whole = hugging_face.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end)
        whole.chat_template = template
    came = whole.chat_template
    if isinstance(came, dict):  # of several by name
        came = came.get("default")
    begin = "".join(str(tokenizer.id_to_token(each)) for each in first_ids(tokenizer))
    own = (f"{{{{- {json.dumps(begin)} }}}}" if begin else "") + OWN_TEMPLATE.read_text("utf-8")
    template = _read_template(template_path) if template_path is not None else came or own
    return Conversations(whole, template, is_own=template != came, learns_inputs=learns_inputs, begin=begin)


def _read_template(path: Path) -> str:
    try:
        if path.stat().st_size > TEMPLATE_BYTES_MAX:
            raise ValueError(f"it has more than {TEMPLATE_BYTES_MAX >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadConfig([f"chat_template {path.name} cannot be read: {error}"]) from error


def _parts(record: Record) -> list[list[Message]]:
    """The messages: of a whole conversation one list, of a prompt and its completion two. Raises BadData."""
    value: dict[str, Any] = record.value if isinstance(record.value, dict) else {}
    if isinstance(found := _first(value, "messages", "conversations"), list):
        system = [{"role": "system", "content": value["system"]}] if isinstance(value.get("system"), str) else []
        parts = [_messages(record, [*system, *found])]
    elif _has(value, "prompt", "completion"):
        parts = [_side(record, value["prompt"], "user"), _side(record, value["completion"], ANSWERS)]
        if isinstance(value["prompt"], str) != isinstance(value["completion"], str):
            raise BadData(f"{record}: prompt and completion must both be texts, or both lists of messages")
    else:
        asked = [str(value[key]) for key in ("instruction", "input") if value.get(key)]
        parts = [_side(record, "\n\n".join(asked), "user") + _side(record, value["output"], ANSWERS)]
    return parts


def _first(value: dict[str, Any], *keys: str) -> Any:
    """Of the first key that has one: a table has every key in every row."""
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _has(value: dict[str, Any], *keys: str) -> bool:
    return all(value.get(key) is not None for key in keys)


def _said(record: Record, value: object) -> str:
    """All that a text or a list of messages says; nothing of any other value, which is refused where it is written."""
    if isinstance(value, list) and value:
        return "\n".join(str(message["content"]) for message in _messages(record, value))
    return value if isinstance(value, str) else ""


def _side(record: Record, value: object, role: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, list):
        return _messages(record, value)
    raise BadData(f"{record}: a prompt, completion or output must be a text or a list of messages")


def _messages(record: Record, found: list[Any]) -> list[Message]:
    if not 1 <= len(found) <= MESSAGES_MAX:
        raise BadData(f"{record} has {len(found)} messages, from 1 to {MESSAGES_MAX} are possible")
    return [_message(record, each) for each in found]


def _message(record: Record, value: Any) -> Message:
    """One as templates know them; what else it holds (tool calls, what a model thought) stays."""
    if not isinstance(value, dict):
        raise BadData(f"{record}: a message must be an object with role and content")
    message = {key: each for key, each in _without_nones(value).items() if key not in {"from", "value"}}
    role, content = _first(value, "role", "from"), _first(value, "content", "value")
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        content = "".join(part["text"] for part in content)  # as interfaces that know images write a text
    if content is None and message.get("tool_calls"):
        content = ""
    if not isinstance(role, str) or not isinstance(content, str):
        raise BadData(f"{record}: a message must have a role and a content that are texts")
    if role.lower() not in ROLES:  # templates pass over what they do not know
        raise BadData(f"{record}: a message's role is {role!r:.40}, expected one of {', '.join(ROLES)}")
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):  # interfaces have them as a text in JSON, templates as an object
            function["arguments"] = _parsed(function.get("arguments"))
    return {**message, "role": ROLES[role.lower()] or role.lower(), "content": content}


def _without_nones(value: Any) -> Any:
    """A table gives every object the keys of all."""
    if isinstance(value, dict):
        return {key: _without_nones(each) for key, each in value.items() if each is not None}
    return [_without_nones(each) for each in value] if isinstance(value, list) else value


def _parsed(value: Any) -> Any:
    """What a text in JSON says; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
