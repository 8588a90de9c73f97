"""Whether another replica's answer is what this model gives: one forward pass over it, against its commitment.

What is compared, and what each finds:

    binding      digests of prompt, weights, sampling, output: what the other side admits to have done otherwise
    text         the tokens committed to are the text that the caller got
    prompt       hidden states of the prompt: other weights, precision, or another prompt
    decoding     hidden states of each 32 tokens: the same for what was written
    drawing      each token is the one that seed and probabilities give: other sampling, or tokens from elsewhere
    finish       the answer ended where it had to

The hidden states alone say nothing of how tokens were drawn from them; the drawing alone says little of a model that
agrees with ours in most of its tokens. A replica that lets a smaller model write, and the true one only read, passes
the first and fails the second.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from runtimes.serve.commitments import BadCommitment, Binding, Commitment, compare, read_commitment
from runtimes.serve.engines.souk.errors import BadRequest
from runtimes.serve.engines.souk.model import Model
from runtimes.serve.engines.souk.request import InferenceRequest
from runtimes.serve.engines.souk.sampling import gap
from runtimes.serve.engines.souk.text import Texts, Writing
from runtimes.serve.verification import BOUNDS, Bounds, Verdict, find_faults, measure

ANSWERS_MAX: Final = 128
TEXT_LENGTH_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class Claimed:
    """One choice as it reached the caller, and what its replica committed to."""

    index: int
    text: str | None  # None: not known
    finish: str | None  # None: not known
    output: list[int]
    commitment: bytes


@dataclass(frozen=True)
class Checked:
    """What came of one choice."""

    index: int
    verdict: Verdict
    faults: list[str]
    numbers: dict[str, float]


def read_claims(body: Mapping[str, Any], request: InferenceRequest) -> list[Claimed]:
    """The `answers` of a check's body. Raises BadRequest for a mistake in the body.

    What the replica in question wrote, its tokens and its commitment, is never refused: else it could write what
    nobody checks.
    """
    answers = body.get("answers")
    if not isinstance(answers, list) or not 0 < len(answers) <= ANSWERS_MAX:
        raise BadRequest(f"answers must be a list of 1 to {ANSWERS_MAX}", param="answers")
    claims = [_read_claim(answer) for answer in answers]
    for claim in claims:
        if claim.index >= len(request.prompts) * request.choices:
            raise BadRequest(f"there was no choice {claim.index}", param="answers")
    return claims


def check_claim(
    claim: Claimed, request: InferenceRequest, model: Model, texts: Texts, bounds: Bounds | None = None
) -> Checked:
    """Compute it again and compare. For the computing thread."""
    try:
        commitment = read_commitment(claim.commitment)
    except BadCommitment:
        return Checked(claim.index, "mismatch", ["commitment"], {})
    prompt = _prompt(request, claim)
    is_real = all(0 <= token < texts.vocabulary for token in claim.output)
    if not claim.output or not is_real or len(prompt) + len(claim.output) > model.context:
        return Checked(claim.index, "mismatch", ["tokens"], {})
    mine = Binding.of(prompt, model.digest, request.sampling.as_json(), claim.output)
    faults = [f"said_{name}" for name in mine.differences(commitment.binding)]
    if _shape(commitment) != (len(prompt), len(claim.output) - 1, model.hidden_size):
        return Checked(claim.index, "mismatch", [*faults, "shape"], {})
    whole = [*prompt, *claim.output[:-1]]
    computed = model.read_whole(whole, len(claim.output))
    hidden, logits = computed.hidden_rows(0), computed.logits_rows(0)
    chunks = compare(commitment, hidden[: len(prompt)], hidden[len(prompt) :])
    choice = claim.index % request.choices
    gaps = [
        gap(row, request.sampling, choice, len(prompt) + number, token)
        for number, (row, token) in enumerate(zip(logits, claim.output, strict=True))
    ]
    is_same_precision = commitment.dtype == model.dtype
    faults += find_faults(chunks, gaps, bounds or BOUNDS[model.dtype])
    faults += _text_faults(claim, request, texts)
    if not is_same_precision:
        faults.append("said_precision")
    numbers = asdict(measure(chunks, gaps)) | {"tokens": len(claim.output), "chunks": len(chunks)}
    return Checked(claim.index, "mismatch" if faults else "match", faults, numbers)


def as_json(checked: list[Checked], digest: str) -> dict[str, Any]:
    """The answer to a check: the worst of its choices is the verdict."""
    verdicts = [one.verdict for one in checked]
    verdict = "mismatch" if "mismatch" in verdicts else "match"
    return {"verdict": verdict, "weights": digest, "choices": [asdict(one) for one in checked]}


def _text_faults(claim: Claimed, request: InferenceRequest, texts: Texts) -> list[str]:
    """The tokens make the text, and end where the request ended them."""
    writing = Writing(texts, request.stops)
    ended_at = 0
    for number, token in enumerate(claim.output, start=1):
        writing.add(token)
        if writing.is_stopped or (token in texts.end_ids and not request.ignores_end):
            ended_at = number
            break
    writing.end()
    faults = [] if claim.text is None or writing.text == claim.text else ["text"]
    is_stop = ended_at == len(claim.output)
    is_length = not ended_at and len(claim.output) >= request.max_tokens
    if claim.finish is not None and claim.finish != ("stop" if is_stop else "length" if is_length else ""):
        faults.append("finish")
    return faults


def _read_claim(answer: Any) -> Claimed:
    if not isinstance(answer, dict):
        raise BadRequest("an answer is a mapping", param="answers")
    index, text, finish, output = (answer.get(name) for name in ("index", "text", "finish_reason", "output_ids"))
    is_text = text is None or (isinstance(text, str) and len(text) <= TEXT_LENGTH_MAX)
    if type(index) is not int or index < 0 or not is_text or not isinstance(finish, str | None):
        raise BadRequest("an answer has index, text, finish_reason, output_ids and commitment", param="answers")
    is_list = isinstance(output, list) and all(type(one) is int for one in output)
    try:
        commitment = base64.b64decode(str(answer.get("commitment", "")), validate=True)
    except ValueError:  # not base64, or not even ASCII
        commitment = b""
    return Claimed(index, text, finish, list(output or []) if is_list else [], commitment)


def _prompt(request: InferenceRequest, claim: Claimed) -> list[int]:
    return request.prompts[claim.index // request.choices]


def _shape(commitment: Commitment) -> tuple[int, int, int]:
    return commitment.prompt_tokens, commitment.decoded, commitment.hidden_size
