"""A stream whose replica died goes on at another from the text that the client has: no byte is lost, none comes twice.

The new engine is given the text as the beginning of its own answer (`continue_final_message`), which it must be able
to take (Capability.CONTINUES: it goes on from exactly this text). What it then writes follows the same distribution as
what was lost; it is the same text only where sampling is greedy. So it is not done where the beginning is more than
text, or where what comes next depends on more than the text: tools, JSON modes, several choices, log probabilities, and
penalties (which count what was written, and not what was read).
"""

from __future__ import annotations

from typing import Any

from jobs.gateway.inference_request import InferenceRequest
from jobs.gateway.routing.capabilities import PLAIN, Need, tokens_name
from runtimes.contract import Capability

MOVES_MAX = 3  # of one stream
COMMENT = "souk: the replica was lost; the answer goes on from here at another one"
NEED: Need = (Capability.CONTINUES, "continue_final_message")

_FIXED = ("tools", "top_logprobs", "presence_penalty", "frequency_penalty", "echo", "suffix", "audio", "min_tokens",
          "prompt_logprobs", "guided_json", "guided_regex", "guided_choice", "structured_outputs")  # fmt: skip


def can_move(request: InferenceRequest) -> bool:
    """Whether this request's stream may continue at another replica at all."""
    if not request.is_stream or request.kind == "embedding":
        return False
    body = request.body
    if request.kind == "completion" and not isinstance(_prompt(body), str):
        return False
    return body.keys() <= PLAIN or _is_text_alone(body)


def continued(request: InferenceRequest, body: dict[str, Any], sent: str, sent_tokens: int) -> dict[str, Any] | None:
    """`body` for the engine that continues after `sent`; None where nothing is left to be written."""
    moved = dict(body)
    name = tokens_name(request)
    left = body[name] - sent_tokens
    if left < 1:
        return None
    moved[name] = left
    if request.kind == "completion":
        moved["prompt"] = str(_prompt(body)) + sent
        return moved
    messages = list(body["messages"])
    last = messages[-1]
    if body.get("continue_final_message") and isinstance(last, dict) and isinstance(last.get("content"), str):
        messages[-1] = last | {"content": last["content"] + sent}
    else:
        messages.append({"role": "assistant", "content": sent})
    return moved | {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}


def _is_text_alone(body: dict[str, Any]) -> bool:
    if any(body.get(name) not in (None, False, 0, []) for name in _FIXED):
        return False
    if body.get("logprobs") is not None and body["logprobs"] is not False:
        return False
    if body.get("n") not in (None, 1) or body.get("best_of") not in (None, 1):
        return False
    format = body.get("response_format")
    return not isinstance(format, dict) or format.get("type") in (None, "text")


def _prompt(body: dict[str, Any]) -> Any:
    prompt = body.get("prompt")
    return prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
