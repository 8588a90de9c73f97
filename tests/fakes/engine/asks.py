"""A request's JSON as what there is to generate, by what this engine can do: the rest is ignored."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import islice
from typing import Any

from runtimes.contract import Capability
from tests.fakes.engine import tokens

MESSAGE_TOKENS = 3  # that the template adds to each message
COMPLETION_TOKENS = 16  # of a completion that names no limit, as OpenAI has it
STREAMED_ARGUMENT = 8  # characters of a tool call's arguments in one chunk


class BadAsk(Exception):
    """The engine refuses, with OpenAI's error."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.code, self.param = message, status, code, param


@dataclass(frozen=True)
class Model:
    """What the engine serves, and what it can."""

    name: str = "fake"
    capabilities: frozenset[Capability] = frozenset(Capability)
    answer_tokens: int = 20  # of a chat's answer that nothing cuts short
    context: int = 1 << 20
    dimensions: int = 32


@dataclass(frozen=True)
class Choice:
    """One answer: its tokens, or the tool that it calls."""

    index: int
    tokens: list[str]
    finish_reason: str
    tool: tuple[str, str, str] | None = None  # id, name, arguments

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.tokens)

    @property
    def count(self) -> int:
        """Tokens that it counts as."""
        return tokens.count(self.tool[2]) + 1 if self.tool else len(self.tokens)


@dataclass(frozen=True)
class Ask:
    """A generation that was understood."""

    kind: str  # chat, completion
    body: dict[str, Any]
    prompt_tokens: int
    choices: list[Choice]
    is_stream: bool
    with_usage: bool
    logprobs: int | None  # alternatives; None: none requested, or not known here


def read(kind: str, body: Any, model: Model) -> Ask:
    """What to say to `body`. Raises BadAsk."""
    if not isinstance(body, dict):
        raise BadAsk("the body must be a JSON object")
    can = model.capabilities.__contains__
    needed = Capability.CHAT if kind == "chat" else Capability.COMPLETIONS
    if not can(needed):
        raise BadAsk(f"this model cannot {needed}", status=404)
    text, prefix, prompt_tokens = _chat_text(body, can) if kind == "chat" else _prompt_text(body)
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise BadAsk("max_tokens must be at least 1", param="max_tokens")
    if prompt_tokens + (limit or 0) > model.context:
        raise BadAsk(f"This model's maximum context length is {model.context} tokens.", code="context_length_exceeded")
    n = body.get("n") or 1 if can(Capability.MANY) else 1
    made = [_choice(kind, index, body, text, prefix, limit, model) for index in range(n)]
    options = body.get("stream_options") or {}
    asked = body.get("logprobs")
    alternatives = None
    if can(Capability.LOGPROBS) and asked is not None and asked is not False:
        alternatives = int(body.get("top_logprobs") or 0) if kind == "chat" else int(asked)
    return Ask(
        kind=kind,
        body=body,
        prompt_tokens=prompt_tokens,
        choices=made,
        is_stream=bool(body.get("stream")),
        with_usage=bool(options.get("include_usage")) and can(Capability.STREAM_USAGE),
        logprobs=alternatives,
    )


def _content(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return str(content)


def _chat_text(body: dict[str, Any], can: Any) -> tuple[str, str, int]:
    """The template's text without the beginning of the answer, that beginning, and the prompt's tokens."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise BadAsk("messages must be a list of objects", param="messages")
    prefix = ""
    if body.get("continue_final_message") and can(Capability.CONTINUES):
        if messages[-1].get("role") != "assistant":
            raise BadAsk("the final message is not the assistant's", param="continue_final_message")
        prefix, messages = _content(messages[-1]), messages[:-1]
    text = "".join(f"<{m.get('role')}>{_content(m)}\n" for m in messages) + "<assistant>"
    counted = sum(tokens.count(_content(m)) + MESSAGE_TOKENS for m in messages) + MESSAGE_TOKENS
    return text, prefix, counted + tokens.count(prefix)


def _prompt_text(body: dict[str, Any]) -> tuple[str, str, int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise BadAsk("prompt must be a string", param="prompt")
    return prompt, "", tokens.count(prompt)


def _choice(
    kind: str, index: int, body: dict[str, Any], text: str, prefix: str, limit: int | None, model: Model
) -> Choice:
    can = model.capabilities.__contains__
    tool = _tool_call(body, can) if kind == "chat" else None
    if tool is not None:
        return Choice(index, [], "tool_calls", tool)
    end = model.answer_tokens - tokens.count(prefix) if kind == "chat" else limit or COMPLETION_TOKENS
    if body.get("ignore_eos"):
        end = limit or model.context
    fixed = _json_answer(body, can) if kind == "chat" else None
    if fixed is not None:
        whole = tokens.pieces(fixed[len(prefix) :] if fixed.startswith(prefix) else fixed)
        end = len(whole)
    else:
        salted = _salt(body, index, can) + text + prefix
        is_first = kind == "chat" and not prefix
        whole = list(islice(tokens.words_after(salted, is_first=is_first), max(0, min(end, tokens.TOKENS_MAX))))
    is_cut = limit is not None and limit <= len(whole) and (kind == "completion" or limit < end)
    kept = whole[:limit] if limit is not None else whole
    stop = body.get("stop") or []
    kept, is_stopped = tokens.cut(kept, [stop] if isinstance(stop, str) else stop)
    is_short = is_cut or kind == "completion"
    return Choice(index, kept, "length" if is_short and not is_stopped else "stop")


def _salt(body: dict[str, Any], index: int, can: Any) -> str:
    """What else the text depends on: nothing for a greedy first choice."""
    parts = [f"choice {index}"] if index else []
    if body.get("temperature"):
        seed = body.get("seed") if can(Capability.SEED) else None
        parts.append(f"{body['temperature']} {seed if seed is not None else os.urandom(8).hex()}")
    if can(Capability.PENALTIES):
        parts += [f"{name} {body[name]}" for name in ("presence_penalty", "frequency_penalty") if body.get(name)]
    return "|".join(parts)


def _tool_call(body: dict[str, Any], can: Any) -> tuple[str, str, str] | None:
    """A tool is called that must be, or that the last message names."""
    offered = {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or []}
    if not offered or not can(Capability.TOOLS):
        return None
    asked = body.get("tool_choice", "auto") if can(Capability.TOOL_CHOICE) else "auto"
    last = _content(body["messages"][-1])
    named = next((name for name in offered if name in last), None)
    if asked == "none" or (asked == "auto" and named is None):
        return None
    name = asked["function"]["name"] if isinstance(asked, dict) else named or next(iter(offered))
    arguments = tokens.instance(offered[name].get("parameters") or {"type": "object"})
    return f"call_{name}", name, tokens.as_json(arguments)


def _json_answer(body: dict[str, Any], can: Any) -> str | None:
    asked = body.get("response_format") or {}
    if asked.get("type") == "json_schema" and can(Capability.JSON_SCHEMA):
        return tokens.as_json(tokens.instance(asked["json_schema"].get("schema") or {}))
    if asked.get("type") == "json_object" and can(Capability.JSON_OBJECT):
        return json.dumps({"answer": "otter", "sure": True})
    return None
