"""A request's JSON as what is to be written; whatever this engine cannot do is refused by name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from runtimes.serve.engines.souk.errors import BadRequest
from runtimes.serve.engines.souk.sampling import TEMPERATURE_MAX, Sampling
from runtimes.serve.engines.souk.text import Texts

CHOICES_MAX: Final = 8
PROMPTS_MAX: Final = 16
STOPS_MAX: Final = 16
STOP_LENGTH_MAX: Final = 256
LOGPROBS_MAX: Final = 20
MESSAGES_MAX: Final = 4096
DEFAULT_MAX_TOKENS: Final = {"chat": None, "completion": 16}  # None: as many as the context holds
SEED_BITS: Final = 63
MISSING: Final[tuple[Any, ...]] = (None, False, 0, "", [], {})
CANNOT: Final = (
    "tools", "tool_choice", "functions", "function_call", "response_format", "logit_bias", "presence_penalty",
    "frequency_penalty", "echo", "suffix", "best_of", "modalities", "audio", "top_k", "min_p",
)  # fmt: skip
HARMLESS: Final = {"tool_choice": ("none", "auto"), "response_format": ({"type": "text"},), "best_of": (1,)}

Kind = Literal["chat", "completion"]


@dataclass(frozen=True)
class Limits:
    """What one request may have: tokens read and written in all, and written."""

    context: int
    max_tokens: int


@dataclass(frozen=True)
class InferenceRequest:
    """One request, checked."""

    kind: Kind
    prompts: list[list[int]]
    sampling: Sampling
    choices: int  # a prompt
    max_tokens: int
    stops: tuple[str, ...]
    logprobs: int | None
    is_stream: bool
    includes_usage: bool
    commits: bool
    ignores_end: bool
    model: str


def read_request(kind: Kind, body: Any, texts: Texts, limits: Limits) -> InferenceRequest:
    """Check a body. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object")
    for name in CANNOT:
        value = body.get(name)
        if value not in MISSING and value not in HARMLESS.get(name, ()):
            raise BadRequest(f"this engine cannot do {name}", param=name, code="unsupported_parameter")
    prompts = _read_chat(body, texts) if kind == "chat" else _read_prompts(body, texts)
    longest, context = max(map(len, prompts)), limits.context
    if longest >= context:
        raise BadRequest(
            f"the prompt has {longest} tokens, and the context {context}",
            param=_input(kind),
            code="context_length_exceeded",
        )
    asked = _whole(body, "max_completion_tokens", 1, context) or _whole(body, "max_tokens", 1, context)
    options = body.get("stream_options")
    return InferenceRequest(
        kind=kind,
        prompts=prompts,
        sampling=Sampling(
            temperature=_number(body, "temperature", 0, TEMPERATURE_MAX, 1.0),
            top_p=_number(body, "top_p", 0, 1, 1.0),
            seed=_seed(body),
        ),
        choices=_whole(body, "n", 1, CHOICES_MAX) or 1,
        max_tokens=min(asked or DEFAULT_MAX_TOKENS[kind] or context, context - longest, limits.max_tokens),
        stops=_stops(body),
        logprobs=_logprobs(kind, body),
        is_stream=body.get("stream") is True,
        includes_usage=isinstance(options, dict) and options.get("include_usage") is True,
        commits=body.get("souk_commit") is True,
        ignores_end=body.get("ignore_eos") is True,
        model=str(body.get("model", "")),
    )


def _read_chat(body: Mapping[str, Any], texts: Texts) -> list[list[int]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not 0 < len(messages) <= MESSAGES_MAX:
        raise BadRequest(f"messages must be a list of 1 to {MESSAGES_MAX}", param="messages")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        raise BadRequest("a message is a mapping with role and content", param="messages")
    plain = [{**message, "content": _plain(message.get("content"))} for message in messages]
    goes_on = body.get("continue_final_message") is True
    return [texts.read_chat(plain, goes_on=goes_on) + _continued_ids(body, texts)]


def _plain(content: Any) -> str:
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if content is not None and not isinstance(content, str):
        raise BadRequest("this engine reads text only", param="messages")
    return content or ""


def _read_prompts(body: Mapping[str, Any], texts: Texts) -> list[list[int]]:
    prompt: Any = body.get("prompt")
    if _is_ids(prompt, texts):
        prompts = [prompt]
    elif isinstance(prompt, str):
        prompts = [texts.read(prompt)]
    elif isinstance(prompt, list) and 0 < len(prompt) <= PROMPTS_MAX and all(isinstance(one, str) for one in prompt):
        prompts = [texts.read(one) for one in prompt]
    elif isinstance(prompt, list) and 0 < len(prompt) <= PROMPTS_MAX and all(_is_ids(one, texts) for one in prompt):
        prompts = prompt
    else:
        raise BadRequest(f"prompt must be a text, token ids, or a list of 1 to {PROMPTS_MAX} of these", param="prompt")
    if not all(prompts):
        raise BadRequest("the prompt is empty", param="prompt")
    continued = _continued_ids(body, texts)
    return [[*one, *continued] for one in prompts]


def _continued_ids(body: Mapping[str, Any], texts: Texts) -> list[int]:
    """Ids of the answer's tokens so far, where it goes on: more exact than its text, which may be cut otherwise."""
    ids = body.get("souk_continue_ids")
    if ids is None:
        return []
    if not _is_ids(ids, texts):
        raise BadRequest("souk_continue_ids is not a list of this model's token ids", param="souk_continue_ids")
    return list(ids)


def _is_ids(value: Any, texts: Texts) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(one) is int and 0 <= one < texts.vocabulary for one in value)
    )


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    is_good = isinstance(stops, list) and len(stops) <= STOPS_MAX
    if not is_good or not all(isinstance(one, str) and len(one) <= STOP_LENGTH_MAX for one in stops):
        raise BadRequest(f"stop must be a text or up to {STOPS_MAX} of them", param="stop")
    return tuple(one for one in stops if one)


def _logprobs(kind: Kind, body: Mapping[str, Any]) -> int | None:
    if kind == "completion":
        return _whole(body, "logprobs", 0, LOGPROBS_MAX) if body.get("logprobs") is not None else None
    if body.get("logprobs") is not True:
        return None
    return _whole(body, "top_logprobs", 0, LOGPROBS_MAX) or 0


def _seed(body: Mapping[str, Any]) -> int:
    seed = body.get("seed")
    if seed is None:
        return secrets.randbits(SEED_BITS)
    if type(seed) is not int or not -(1 << SEED_BITS) <= seed < 1 << SEED_BITS:
        raise BadRequest("seed must be a whole number of 64 bits", param="seed")
    return seed


def _whole(body: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}", param=name)
    if value > most and name in {"n", "logprobs", "top_logprobs"}:
        raise BadRequest(f"{name} must be at most {most}", param=name)
    return min(value, most)


def _number(body: Mapping[str, Any], name: str, least: float, most: float, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadRequest(f"{name} must be a number from {least} to {most}", param=name)
    return float(value)


def _input(kind: Kind) -> str:
    return "messages" if kind == "chat" else "prompt"
