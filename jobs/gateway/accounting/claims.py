"""What a replica claims of its answer and the verdict of a checker, as data: nothing is believed beyond its form."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from jobs.gateway.inference_request import InferenceRequest

FAULTS_MAX: Final = 16
SPOILT_BYTES: Final = 64


@dataclass(frozen=True)
class Answered:
    """A whole answer of one replica: what the engine was sent, answered, and committed to."""

    request: InferenceRequest
    lease_id: UUID
    body: Mapping[str, Any]
    text: str  # of the first choice, as the caller got it
    whole: Mapping[str, Any] | None  # of an answer in one piece; None: it was a stream
    commitment: Any  # the engine's `souk_commitment`; None: it gave none


@dataclass(frozen=True)
class Verdict:
    """One checker's verdict on one answer."""

    is_match: bool
    detail: str


def claims_of(answered: Answered) -> list[dict[str, Any]]:
    """The choices that the caller got, each with what was committed to. Raises ValueError, KeyError, TypeError."""
    got: list[tuple[int, str | None, str | None]]
    committed = {int(one["index"]): one for one in answered.commitment}
    if set(committed) != set(range(_choices(answered.body))):
        raise ValueError("not every choice was committed to, or more than there are")
    if answered.whole is not None:
        choices = answered.whole["choices"]
        got = [(int(choice["index"]), _text(choice), choice.get("finish_reason")) for choice in choices]
    else:  # of a stream of several choices, or one too long to be kept, the text is not known
        text = answered.text if len(committed) == 1 and answered.text else None
        got = [(index, text, None) for index in sorted(committed)]
    return [
        {
            "index": index,
            "text": text,
            "finish_reason": finish,
            "output_ids": committed[index]["output_ids"],
            "commitment": committed[index]["commitment"],
        }
        for index, text, finish in got
    ]


def _choices(body: Mapping[str, Any]) -> int:
    """The number of answers that a request needs."""
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    return prompts * int(body.get("n") or 1)


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    return str((message.get("content") if isinstance(message, dict) else choice.get("text")) or "")


def spoilt(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The same claim with its last numbers made up: only a replica that computes the answer again notices."""
    try:
        data = base64.b64decode(claim["commitment"], validate=True)
    except binascii.Error:
        return dict(claim)
    made_up = bytes(secrets.randbelow(0xFF) for _ in range(min(SPOILT_BYTES, len(data) // 4)))
    return {**claim, "commitment": base64.b64encode(data[: len(data) - len(made_up)] + made_up).decode()}


def verdict_of(reported: Any) -> Verdict | None:
    """A replica's verdict; None where its form is wrong."""
    if not isinstance(reported, dict) or reported.get("verdict") not in ("match", "mismatch"):
        return None
    choices = [choice for choice in reported.get("choices", []) if isinstance(choice, dict)]
    faults = sorted({str(fault)[:32] for choice in choices for fault in choice.get("faults", [])[:FAULTS_MAX]})
    numbers: dict[str, Any] = next(
        (choice["numbers"] for choice in choices if isinstance(choice.get("numbers"), dict)), {}
    )
    shown = {str(name)[:32]: value for name, value in numbers.items() if isinstance(value, int | float)}
    detail = f"{', '.join(faults[:FAULTS_MAX])} {json.dumps(shown)}" if reported["verdict"] == "mismatch" else ""
    return Verdict(reported["verdict"] == "match", detail.strip())
