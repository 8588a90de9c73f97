"""A request's body has OpenAI's form, as far as the gateway reads it; each refusal names the parameter.

Fields that are not known here pass through: what an engine cannot do is refused by what it declared, not by us.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from jobs.gateway import strict_json
from jobs.gateway.errors import ApiError
from jobs.gateway.inference_request import Kind
from jobs.gateway.messages import EndpointRow

DEPTH_MAX = 64
MODEL_CHARS_MAX = 200
MESSAGES_MAX = 10_000
INPUTS_MAX = 2_048
N_MAX = 128
STOPS_MAX = 16
BYTES_PER_TOKEN = 3  # an estimate on the safe side for most text
MESSAGE_TOKENS = 8  # what a chat template adds to each message, about
BIG = 1 << 53


@dataclass(frozen=True, slots=True)
class ValidatedBody:
    """A body that may be answered, and what it may use at most."""

    body: dict[str, Any]
    is_stream: bool
    input_tokens: int  # estimated
    output_tokens_max: int


def read_json(raw: bytes | bytearray) -> dict[str, Any]:
    """An object as JSON has it: no NaN, no name twice, no half of a character, not too deep. Raises ApiError 400."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        _refuse("The body is not UTF-8.")
    try:
        body = _DECODER.decode(text)
    except RecursionError:
        _refuse(f"The body is nested deeper than {DEPTH_MAX} levels.")
    except ValueError as error:
        _refuse(f"We could not parse the JSON body of your request: {_describe(error)}")
    if not isinstance(body, dict):
        _refuse("The body must be a JSON object.")
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and _is_deeper(body, DEPTH_MAX):
        _refuse(f"The body is nested deeper than {DEPTH_MAX} levels.")
    if b"\\ud" in raw or b"\\uD" in raw:
        try:
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            _refuse("The body has half a surrogate pair, which is no text.")
    return body


def read_model(body: dict[str, Any]) -> str:
    """The name of the model. Raises ApiError 400."""
    model = body.get("model")
    if not isinstance(model, str) or not model or len(model) > MODEL_CHARS_MAX:
        _refuse("You must provide a model: the name of an endpoint.", "model")
    return model


def validate_body(kind: Kind, body: dict[str, Any], endpoint: EndpointRow, size: int) -> ValidatedBody:
    """Types and bounds of the fields that are read here. Raises ApiError 400.

    The engine gets `max_tokens` always: as requested (`max_completion_tokens` means the same), else the bound
    of the endpoint, so that what a request may cost is known before it is admitted.
    """
    if kind == "embedding":
        _validate_input(body)
        return ValidatedBody(body, False, _estimate(size, _pieces(body["input"]), _token_count(body["input"])), 0)
    is_stream = _boolean(body, "stream")
    _validate_stream_options(body, is_stream)
    n = _whole(body, "n", 1, N_MAX) or 1
    _number(body, "temperature", 0, 2)
    _number(body, "top_p", 0, 1)
    _validate_stop(body)
    if kind == "chat":
        _validate_messages(body)
        pieces, tokens = len(body["messages"]), 0
    else:
        _validate_prompt(body)
        n = max(n, _whole(body, "best_of", 1, N_MAX) or 1)
        pieces = _pieces(body["prompt"])
        n, tokens = n * pieces, _token_count(body["prompt"])
    max_tokens = _validate_max_tokens(kind, body, endpoint.limits.max_tokens)
    return ValidatedBody(body, is_stream, _estimate(size, pieces, tokens), n * max_tokens)


def _validate_max_tokens(kind: Kind, body: dict[str, Any], bound: int) -> int:
    wanted = _whole(body, "max_tokens", 0 if kind == "completion" else 1, BIG)
    param = "max_tokens"
    if kind == "chat" and body.get("max_completion_tokens") is not None:
        other = _whole(body, "max_completion_tokens", 1, BIG)
        if wanted is not None and wanted != other:
            _refuse("max_tokens and max_completion_tokens say different things; send one.", "max_completion_tokens")
        wanted, param = other, "max_completion_tokens"
    if wanted is not None and wanted > bound:
        _refuse(f"{param} is {wanted}, and this model writes at most {bound} tokens a request.", param)
    body.pop("max_completion_tokens", None)
    tokens = bound if wanted is None else wanted
    body["max_tokens"] = tokens
    return tokens


def _validate_messages(body: dict[str, Any]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        _refuse("messages must be an array with at least one message.", "messages")
    if len(messages) > MESSAGES_MAX:
        _refuse(f"messages may have {MESSAGES_MAX} messages at most.", "messages")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            _refuse("Each message must be an object.", f"messages[{place}]")
        if not isinstance(message.get("role"), str):
            _refuse("Each message must have a role, which is text.", f"messages[{place}].role")
        content = message.get("content")
        if content is not None and not isinstance(content, str | list):
            _refuse("A message's content must be text, or an array of parts.", f"messages[{place}].content")
        if isinstance(content, list) and not all(
            isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
        ):
            _refuse("Each part of a content must be an object with a type.", f"messages[{place}].content")


def _validate_prompt(body: dict[str, Any]) -> None:
    prompt = body.get("prompt")
    parts = prompt if isinstance(prompt, list) else []
    is_texts = bool(parts) and all(isinstance(part, str) for part in parts)
    is_lists = bool(parts) and all(_is_tokens(part) for part in parts)
    if not (isinstance(prompt, str) or _is_tokens(prompt) or is_texts or is_lists):
        _refuse("prompt must be text, an array of texts, or token ids.", "prompt")
    if (is_texts or is_lists) and len(parts) > N_MAX:
        _refuse(f"prompt may have {N_MAX} texts at most.", "prompt")


def _validate_input(body: dict[str, Any]) -> None:
    given = body.get("input")
    parts = given if isinstance(given, list) else []
    is_texts = bool(parts) and all(isinstance(part, str) and part for part in parts)
    is_lists = bool(parts) and all(_is_tokens(part) for part in parts)
    if not ((isinstance(given, str) and given) or _is_tokens(given) or is_texts or is_lists):
        _refuse("input must be text, an array of texts, or token ids; none may be empty.", "input")
    if (is_texts or is_lists) and len(parts) > INPUTS_MAX:
        _refuse(f"input may have {INPUTS_MAX} texts at most.", "input")
    if body.get("encoding_format") not in {None, "float", "base64"}:
        _refuse("encoding_format must be float or base64.", "encoding_format")
    _whole(body, "dimensions", 1, BIG)


def _validate_stop(body: dict[str, Any]) -> None:
    stop = body.get("stop")
    if stop is None or isinstance(stop, str):
        return
    if not isinstance(stop, list) or len(stop) > STOPS_MAX or not all(isinstance(part, str) for part in stop):
        _refuse(f"stop must be text, or an array of at most {STOPS_MAX} texts.", "stop")


def _validate_stream_options(body: dict[str, Any], is_stream: bool) -> None:
    options = body.get("stream_options")
    if options is None:
        return
    if not isinstance(options, dict) or not isinstance(options.get("include_usage"), bool | None):
        _refuse("stream_options must be an object; its include_usage is true or false.", "stream_options")
    if not is_stream:
        _refuse("stream_options is only for requests with stream: true.", "stream_options")


def _boolean(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        _refuse(f"{name} must be true or false.", name)
    return bool(value)


def _whole(body: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(
            f"{name} must be a whole number, at least {least}" + (f", at most {most}." if most < BIG else "."), name
        )
    return value


def _number(body: dict[str, Any], name: str, least: float, most: float) -> None:
    value = body.get(name)
    if value is not None and (
        not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most
    ):
        _refuse(f"{name} must be a number from {least} to {most}.", name)


def _is_tokens(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) > 0 and all(type(token) is int and 0 <= token < BIG for token in value)
    )


def _pieces(value: Any) -> int:
    return len(value) if isinstance(value, list) and not _is_tokens(value) else 1


def _token_count(value: Any) -> int:
    """How many token ids were given; 0: text was."""
    if _is_tokens(value):
        return len(value)
    return sum(len(part) for part in value if isinstance(part, list)) if isinstance(value, list) else 0


def _estimate(size: int, pieces: int, tokens: int) -> int:
    return tokens or size // BYTES_PER_TOKEN + MESSAGE_TOKENS * pieces


def _is_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two values for one name: engine and gateway might read different ones."""
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ApiError(400, "invalid_json", f"The body names {name[:MODEL_CHARS_MAX]!r} twice.", param=name[:64])
    return value


def _describe(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}."
    return "a number has too many digits." if "digit" in str(error) else f"{error}."


def _refuse(message: str, param: str | None = None) -> NoReturn:
    raise ApiError(400, "invalid_json" if param is None else "invalid_value", message, param=param)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=strict_json.no_number, parse_float=strict_json.finite
)
