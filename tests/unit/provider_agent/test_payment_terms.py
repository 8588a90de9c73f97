"""What an agent from before payment in tokens sees of a newer server, and a newer agent of both."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError, create_model

from provider_agent.protocol import (
    NO_CONTRACT,
    Assignment,
    Message,
    PaymentTerms,
    Program,
    sign_assignment,
    verify_assignment,
)

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw().hex()
TERMS = PaymentTerms(asset="TUSD", token="0x" + "a1" * 20, chain_id=31337, rate_per_hour=7 * 10**30, cap=10**40)

# The fields of an assignment before payment in tokens, by name; anything else was refused.
_OLD: Any = {name: (info.annotation, info) for name, info in Assignment.model_fields.items() if name != "payment"}
OldAssignment: Any = create_model("OldAssignment", __base__=Message, **_OLD)


def assignment(**changes: Any) -> Assignment:
    values: dict[str, Any] = {
        **{name: uuid4() for name in ("node_id", "lease_id", "attempt_id", "job_id")},
        "fence": 1,
        "attempt_number": 1,
        "job_name": "tiny",
        "device_uuids": ["gpu-0"],
        "seconds_max": 60,
        "rate_usd_micros_per_hour": 720_000,
        "cap_usd_micros": 2_000_000,
        "program": Program(command=["true"]),
    }
    return Assignment(**values | changes)


def test_an_older_agent_reads_work_for_dollars_as_before() -> None:
    signed = sign_assignment(KEY, assignment())
    assert "payment" not in signed.payload
    old: Any = OldAssignment.model_validate_json(signed.payload)
    assert old.rate_usd_micros_per_hour == 720_000
    read = verify_assignment(PUBLIC, signed)
    assert (read.rate_per_hour, read.cap, read.receipt_domain) == (720_000, 2_000_000, NO_CONTRACT)
    # The journal too: an agent that goes back to an older version still reads what it was given.
    OldAssignment.model_validate_json(read.model_dump_json())


def test_an_older_agent_refuses_work_for_tokens_rather_than_sign_for_dollars() -> None:
    signed = sign_assignment(KEY, assignment(payment=TERMS))
    with pytest.raises(ValidationError, match="payment"):
        OldAssignment.model_validate_json(signed.payload)


def test_terms_survive_the_wire_to_the_last_unit() -> None:
    read = verify_assignment(PUBLIC, sign_assignment(KEY, assignment(payment=TERMS)))
    assert read.payment == TERMS
    assert (read.rate_per_hour, read.cap) == (7 * 10**30, 10**40)
    assert read.receipt_domain == TERMS.domain and read.receipt_parties == TERMS.parties


def test_an_assignment_from_before_tokens_is_read_as_one_for_dollars() -> None:
    old = OldAssignment.model_validate_json(sign_assignment(KEY, assignment()).payload)
    assert Assignment.model_validate_json(old.model_dump_json()).payment is None


@pytest.mark.parametrize(
    "change",
    [{"chain_id": 0}, {"rate_per_hour": 0}, {"cap": -1}, {"cap": 2**256}, {"token": "0x12"}, {"provider": "bob"}],
)
def test_terms_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PaymentTerms.model_validate(TERMS.model_dump() | change)
