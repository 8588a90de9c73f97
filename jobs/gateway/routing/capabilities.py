"""What a request needs of an engine, and what is sent to the one that answers it.

Engines pass over what they do not know, so it is refused here: `unsupported_parameter`, with the parameter's name and
the engine's. What means nothing (a default that was written out) is taken away instead, and what the gateway does
itself (`stream_options`: it counts) is never refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from jobs.gateway.engines.tokens import PromptSize
from jobs.gateway.engines.upstream import Announced
from jobs.gateway.errors import ApiError
from jobs.gateway.inference_request import InferenceRequest, Kind
from jobs.gateway.messages import EndpointLimits
from runtimes.contract import Capability

BYTES_PER_TOKEN_MAX = 128  # no tokenizer in use has a longer token: a prompt beyond this times the context is refused
NEVER_SENT = frozenset(  # bookkeeping, and what is done here
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "stream_options"}
)
KINDS: dict[Kind, Capability] = {
    "chat": Capability.CHAT,
    "completion": Capability.COMPLETIONS,
    "embedding": Capability.EMBEDDINGS,
}
PLAIN = frozenset(  # what every engine knows: most requests have nothing else, and need no closer look
    {
        "model",
        "messages",
        "prompt",
        "input",
        "stream",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stop",
    }
)
MESSAGE_CHARS_MAX = 1000
SEED_MASK = (1 << 53) - 1  # JSON's whole numbers are exact so far. An engine that commits draws by a seed not its own

Need = tuple[Capability, str]  # and the parameter that needs it
PLAIN_NEEDS: dict[Kind, Sequence[Need]] = {kind: ((capability, "model"),) for kind, capability in KINDS.items()}


def needs(request: InferenceRequest) -> Sequence[Need]:
    """What an engine must be able to do to answer rightly."""
    body = request.body
    if body.keys() <= PLAIN:
        return PLAIN_NEEDS[request.kind]
    found: list[Need] = [(KINDS[request.kind], "model")]
    if body.get("tools") and body.get("tool_choice") != "none":
        found.append((Capability.TOOLS, "tools"))
        if body.get("tool_choice") not in (None, "auto"):
            found.append((Capability.TOOL_CHOICE, "tool_choice"))
    format = body.get("response_format")
    if isinstance(format, dict) and format.get("type") not in (None, "text"):
        is_object = format["type"] == "json_object"
        found.append((Capability.JSON_OBJECT if is_object else Capability.JSON_SCHEMA, "response_format"))
    if body.get("logprobs") is not None and body["logprobs"] is not False:  # a completion's 0 requests them
        found.append((Capability.LOGPROBS, "logprobs"))
    if body.get("top_logprobs"):
        found.append((Capability.LOGPROBS, "top_logprobs"))
    found += [(Capability.MANY, name) for name in ("n", "best_of") if body.get(name) not in (None, 1)]
    if body.get("seed") is not None:
        found.append((Capability.SEED, "seed"))
    found += [(Capability.PENALTIES, name) for name in ("presence_penalty", "frequency_penalty") if body.get(name)]
    if body.get("continue_final_message"):
        found.append((Capability.CONTINUES, "continue_final_message"))
    return found


def can_answer(wanted: Iterable[Need], capabilities: Collection[str]) -> bool:
    """Whether an engine has all of it."""
    return all(capability in capabilities for capability, _ in wanted)


def refuse_lacking(wanted: Iterable[Need], engines: Iterable[Announced]) -> None:
    """Raises ApiError where replicas are there and none of them can: waiting would not help."""
    engines = list(engines)
    if not engines or any(can_answer(wanted, engine.capabilities) for engine in engines):
        return
    names = " and ".join(sorted({engine.engine or "engine" for engine in engines}))
    for capability, param in wanted:
        if not any(capability in engine.capabilities for engine in engines):
            what = f"{capability}" if param == "model" else f"{param!r}"
            raise ApiError(
                400, "unsupported_parameter", f"the engine of this model ({names}) does not support {what}", param=param
            )
    params = ", ".join(param for _, param in wanted)
    raise ApiError(400, "unsupported_parameter", f"no replica of this model supports all of {params}", param=None)


def refuse_removed(request: InferenceRequest) -> None:
    """Raises ApiError for what no engine here knows."""
    for name in ("functions", "function_call"):
        if request.body.get(name):
            raise ApiError(400, "unsupported_parameter", f"{name!r} is not supported: use 'tools'", param=name)


def tokens_name(request: InferenceRequest) -> str:
    """The parameter that bounds what is written, as this request calls it."""
    is_new = request.kind == "chat" and request.body.get("max_completion_tokens") is not None
    return "max_completion_tokens" if is_new else "max_tokens"


def tokens_wanted(request: InferenceRequest, limits: EndpointLimits) -> int | None:
    """The most that the caller wants written; None where the request has no lower bound than the endpoint's own."""
    value = request.body.get(tokens_name(request))
    return value if isinstance(value, int) and not isinstance(value, bool) and value != limits.max_tokens else None


def tokens_max(request: InferenceRequest, limits: EndpointLimits) -> int:
    """The most that all choices of an answer may have."""
    wanted = tokens_wanted(request, limits)
    return choices_asked(request) * (limits.max_tokens if wanted is None else wanted)


def choices_asked(request: InferenceRequest) -> int:
    """How many choices, or embeddings, there are in the answer."""
    n = 1 if request.kind == "embedding" else int(request.body.get("n") or 1)
    given = None if request.kind == "chat" else request.body.get("prompt" if request.kind == "completion" else "input")
    if not isinstance(given, list) or all(isinstance(each, int) for each in given):
        return n
    return n * len(given)


def refuse_too_long(request: InferenceRequest, size: PromptSize, limits: EndpointLimits, context: int | None) -> None:
    """Raises ApiError for what is sure to be too long; where it is close, the engine counts and refuses by itself."""
    wanted, param = tokens_wanted(request, limits), tokens_name(request)
    if request.kind != "embedding" and wanted is not None and wanted > limits.max_tokens:
        message = f"{param} is {wanted}: this model writes at most {limits.max_tokens} tokens for a request"
        raise ApiError(400, "invalid_value", message, param=param)
    if not context:
        return
    least = size.tokens if size.tokens is not None else size.text_bytes // BYTES_PER_TOKEN_MAX
    if least + (wanted or 0) > context:
        given = {"chat": "messages", "completion": "prompt", "embedding": "input"}[request.kind]
        raise context_exceeded(
            f"this model's context is {context} tokens; the request has {least} or more and asks for {wanted or 0}",
            param=param if least <= context else given,
        )


def context_exceeded(message: str, *, param: str | None) -> ApiError:
    """The error that OpenAI's clients know."""
    return ApiError(400, "context_length_exceeded", message, param=param)


def engine_body(
    request: InferenceRequest, engine: Announced, limits: EndpointLimits, prompt_tokens: int, *, commits: bool
) -> dict[str, Any]:
    """What this engine is sent: nothing that it would refuse, always a limit, and a request for its count."""
    body = {name: value for name, value in request.body.items() if name not in NEVER_SENT and value is not None}
    can = engine.capabilities.__contains__
    served_as = engine.details.get("served_as")
    body["model"] = served_as if isinstance(served_as, str) else request.endpoint.model
    if not body.keys() <= PLAIN:
        _drop_defaults(body, can)
    if request.kind == "embedding":
        return body
    if tokens_wanted(request, limits) is None:
        body[tokens_name(request)] = tokens_allowed(limits, engine.context, prompt_tokens)
    if request.is_stream and can(Capability.STREAM_USAGE):
        body["stream_options"] = {"include_usage": True}
    if commits and can(Capability.COMMITS):
        body["souk_commit"] = True
        body.setdefault("seed", request.request_id.int & SEED_MASK)
    return body


def tokens_allowed(limits: EndpointLimits, engine_context: int | None, prompt_tokens: int) -> int:
    """What a request without a lower bound may write: the endpoint's bound, or what its context leaves."""
    contexts = [context for context in (limits.context, engine_context) if context]
    if not contexts:
        return limits.max_tokens
    left = min(contexts) - prompt_tokens - prompt_tokens // 4 - 64  # the prompt is estimated
    return max(1, min(limits.max_tokens, max(left, min(contexts) // 8)))


def from_engine(status: int, body: bytes) -> ApiError:
    """An engine's refusal in OpenAI's form, whatever form it had."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    error = data.get("error", data) if isinstance(data, dict) else None
    message, param = "", None
    if isinstance(error, str):
        message = error
    elif isinstance(error, dict):
        reported = error.get("message", error.get("detail", ""))
        message = reported if isinstance(reported, str) else json.dumps(reported)
        param = error["param"] if isinstance(error.get("param"), str) else None
    message = message[:MESSAGE_CHARS_MAX] or "the engine refused the request"
    lowered = message.lower()
    code = error.get("code") if isinstance(error, dict) else None
    if code == "context_length_exceeded" or ("context" in lowered and ("length" in lowered or "maximum" in lowered)):
        return context_exceeded(message, param=param)
    return ApiError(413 if status == 413 else 400, "engine_refused", message, param=param)


def _drop_defaults(body: dict[str, Any], can: Any) -> None:
    """Take away what was written out and means nothing, for engines that would refuse it or warn."""
    if body.get("tool_choice") == "none" and not can(Capability.TOOL_CHOICE):
        body.pop("tools", None)
    if not body.get("tools") or (body.get("tool_choice") in ("auto", "none") and not can(Capability.TOOL_CHOICE)):
        body.pop("tool_choice", None)
    if not body.get("tools") or body.get("parallel_tool_calls") is True:
        body.pop("parallel_tool_calls", None)
    if not body.get("tools"):
        body.pop("tools", None)
    format = body.get("response_format")
    if isinstance(format, dict) and format.get("type") == "text":
        del body["response_format"]
    for name, default in (("logprobs", False), ("n", 1), ("best_of", 1), ("presence_penalty", 0), ("echo", False)):
        if name in body and body[name] == default and not (name == "logprobs" and body[name] is not False):
            del body[name]
    if body.get("frequency_penalty") == 0:
        del body["frequency_penalty"]
