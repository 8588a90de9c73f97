"""The options of a request to the transformers engine: each is read within its bounds, or the request is refused."""

from __future__ import annotations

from typing import Any

from runtimes.serve.engines.generation import Generation, RequestOptions, Sampling
from runtimes.serve.engines.listening import Refused
from runtimes.serve.engines.stops import STOP_CHARACTERS_MAX, STOPS_MAX

TEMPERATURE_MAX = 2.0
UNSUPPORTED = ("tools", "tool_choice", "functions", "function_call", "logprobs", "top_logprobs", "seed", "logit_bias",
               "presence_penalty", "frequency_penalty", "best_of", "echo", "suffix", "generation_config",
               "chat_template_kwargs", "audio", "modalities")  # fmt: skip
NOT_GIVEN: tuple[Any, ...] = (None, False, 0, [], {}, "none", "")


def read_options(body: dict[str, Any], generation: Generation) -> RequestOptions:
    """The options of a request beside its text; raises Refused for one that this engine would ignore."""
    for name in UNSUPPORTED:
        if body.get(name) not in NOT_GIVEN:
            raise Refused(f"This engine does not do `{name}`.", code="unsupported_parameter", param=name)
    if body.get("n") not in (None, 1):
        raise Refused("This engine makes one choice a request.", code="unsupported_parameter", param="n")
    form = body.get("response_format")
    if form is not None and (not isinstance(form, dict) or form.get("type") != "text"):
        raise Refused("This engine answers in text.", code="unsupported_parameter", param="response_format")
    options = body.get("stream_options") or {}
    messages = body.get("messages")
    continues = bool(body.get("continue_final_message"))
    last = messages[-1] if isinstance(messages, list) and messages else None
    if continues and not (isinstance(last, dict) and last.get("role") == "assistant"):
        raise Refused("Only an assistant's message can be continued.", param="continue_final_message")
    return RequestOptions(
        Sampling(
            temperature=number(body, "temperature", 0, TEMPERATURE_MAX, generation.temperature),
            top_p=number(body, "top_p", 0, 1, generation.top_p),
            stops=read_stops(body.get("stop")),
        ),
        wants_use=bool(isinstance(options, dict) and options.get("include_usage")),
        continues=continues,
    )


def number(body: dict[str, Any], name: str, low: float, high: float, default: float) -> float:
    """A number of the request within its bounds; raises Refused."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Refused(f"`{name}` must be a number from {low} to {high}.", param=name)
    return float(value)


def read_stops(value: Any) -> tuple[str, ...]:
    """The request's stop strings; raises Refused."""
    stops = [value] if isinstance(value, str) else (value or [])
    if not isinstance(stops, list) or len(stops) > STOPS_MAX:
        raise Refused(f"`stop` must be a text or at most {STOPS_MAX} of them.", param="stop")
    if not all(isinstance(stop, str) and 0 < len(stop) <= STOP_CHARACTERS_MAX for stop in stops):
        raise Refused(f"`stop` must hold texts of 1 to {STOP_CHARACTERS_MAX} characters.", param="stop")
    return tuple(stops)


def requested_tokens(body: dict[str, Any]) -> int | None:
    """How many tokens the request wants at most; raises Refused."""
    value = body.get("max_completion_tokens", body.get("max_tokens"))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused("`max_tokens` must be a whole number above 0.", param="max_tokens")
    return value


def check_messages(messages: Any) -> None:
    """That messages are texts with roles; raises Refused."""
    if not isinstance(messages, list) or not messages:
        raise Refused("`messages` must be a list that is not empty.", param="messages")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refused("Each of `messages` must have a role.", param="messages")
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        is_text = isinstance(parts, list) and all(
            isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
            for part in parts
        )
        if not is_text or "tool_calls" in message:
            raise Refused("Each of `messages` must have text as its content.", param="messages")
