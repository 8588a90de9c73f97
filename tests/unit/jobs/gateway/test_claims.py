"""What a replica committed to, and what checkers report of it: anything of another form counts for nothing."""

from __future__ import annotations

import base64
from typing import Any
from uuid import uuid4

import pytest

from jobs.gateway.accounting.claims import Answered, claims_of, spoilt, verdict_of
from tests.unit.jobs.gateway.inference_requests import make_request

PROOF = base64.b64encode(bytes(64)).decode()


def committed(*indexes: int) -> list[dict[str, Any]]:
    return [{"index": index, "output_ids": [index], "commitment": PROOF} for index in indexes]


def answered(commitment: Any, *, body: dict[str, Any] | None = None, whole: Any = None, text: str = "") -> Answered:
    return Answered(make_request(), uuid4(), body or {}, text, whole, commitment)


def test_an_answer_in_one_piece_is_claimed_choice_by_choice() -> None:
    whole = {
        "choices": [
            {"index": 0, "message": {"content": "yes"}, "finish_reason": "stop"},
            {"index": 1, "text": "no", "finish_reason": "length"},
            {"index": 2, "message": {"content": None}},
        ]
    }
    claims = claims_of(answered(committed(2, 1, 0), body={"n": 3}, whole=whole))
    assert [(claim["text"], claim["finish_reason"]) for claim in claims] == [
        ("yes", "stop"),
        ("no", "length"),
        ("", None),
    ]
    assert [claim["output_ids"] for claim in claims] == [[0], [1], [2]]


def test_a_streams_text_is_claimed_only_where_it_is_the_only_one() -> None:
    assert claims_of(answered(committed(0), text="yes"))[0]["text"] == "yes"
    assert claims_of(answered(committed(0)))[0]["text"] is None
    assert [claim["text"] for claim in claims_of(answered(committed(0, 1), body={"n": 2}, text="yes"))] == [None, None]


@pytest.mark.parametrize(
    ("prompt", "choices"), [("one", 1), (["one", "two"], 2), ([1, 2, 3], 1), ([[1], [2], [3]], 3), ([], 1)]
)
def test_each_prompt_needs_a_commitment_of_its_own(prompt: Any, choices: int) -> None:
    assert len(claims_of(answered(committed(*range(choices)), body={"prompt": prompt}))) == choices
    for wrong in (committed(*range(choices + 1)), committed(*range(1, choices))):
        with pytest.raises(ValueError, match="not every choice was committed to"):
            claims_of(answered(wrong, body={"prompt": prompt}))


@pytest.mark.parametrize("commitment", [None, [{}], ["x"], [{"index": 0}]])
def test_a_commitment_of_another_form_is_refused(commitment: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        claims_of(answered(commitment))


def test_a_spoilt_claim_differs_and_has_the_same_length() -> None:
    claim = committed(0)[0] | {"commitment": base64.b64encode(b"\xff" * 64).decode()}
    data = base64.b64decode(spoilt(claim)["commitment"])
    assert len(data) == 64
    assert data != b"\xff" * 64
    assert spoilt(claim | {"commitment": "no base64!"})["commitment"] == "no base64!"


@pytest.mark.parametrize("reported", [None, "match", {}, {"verdict": "maybe"}])
def test_a_verdict_of_another_form_is_none(reported: Any) -> None:
    assert verdict_of(reported) is None


def test_mallorys_verdict_carries_no_more_than_its_form_has() -> None:
    found = verdict_of(
        {
            "verdict": "mismatch",
            "choices": ["x", {"faults": ["x" * 99]}, {"numbers": {"worst": 0.5, "words": "long"}}],
        }
    )
    assert found is not None
    assert "x" * 33 not in repr(found)
    assert "worst" in repr(found)
    assert "words" not in repr(found)
