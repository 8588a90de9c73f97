"""Attacks on what was signed: C2, C3, C4, C8."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web3 import Web3

from tests.unit.billing.contract.chain import address, wallet
from tests.unit.billing.contract.scene import (
    DAY,
    HOLD_TYPES,
    QUICK,
    UNLIMITED,
    ZERO,
    Scene,
    id32,
    only,
)

CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


# ------------------------------------------------------------------ C2

DOMAINS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["Souk ", "souk", "GpuMarket", ""]),
        "version": st.sampled_from(["2", "", "1.0"]),
        "chainId": st.integers(0, 2**64),
        "verifyingContract": st.binary(min_size=20, max_size=20).map(Web3.to_checksum_address),
    },
)


@QUICK
@given(domain=DOMAINS)
def test_C02_a_signature_for_another_domain_is_none_here(scene: Scene, domain: dict[str, Any]) -> None:
    is_ours = scene.domain() == scene.domain(**domain)
    message = dict(
        zip([each["name"] for each in HOLD_TYPES["HoldAuthorization"]], scene.authorize().message, strict=True)
    )
    signed = scene.sign(wallet("alice"), HOLD_TYPES, message, **domain)
    scene.refuses("InsufficientAvailable" if is_ours else "BadSignature", "settler", "openHold", *signed)


def test_C02_receipts_and_delegations_of_another_chain_or_contract_are_refused(scene: Scene) -> None:
    scene.open_hold()
    scene.register()
    for change in ({"chain_id": 1}, {"contract": address("mallory")}, {"chain_id": 0, "contract": ZERO}):
        scene.refuses("BadSignature", "settler", "settleLease", *scene.receipt(**change), [])
    other = Scene.make(scene.chain)
    scene.refuses("BadSignature", "mallory", "registerReceiptKey", *other.delegate("ben"))
    scene.refuses("BadSignature", "settler", "settleLease", *other.receipt(asset=scene.token.address), [])
    assert scene.settle()


# ------------------------------------------------------------------ C3


def test_C03_an_authorization_opens_one_hold_and_never_another(scene: Scene) -> None:
    signed = scene.authorize()
    scene.do("alice", "deposit", 30_000)
    scene.do("settler", "openHold", *signed)
    assert scene.view("nonceUsed", address("alice"), signed.message[-1])
    scene.refuses("HoldExists", "settler", "openHold", *signed)
    scene.refuses("NonceUsed", "settler", "openHold", *scene.authorize(job="other", nonce=signed.message[-1]))
    scene.do("settler", "closeHold", address("alice"), id32("job"))
    scene.refuses("HoldExists", "settler", "openHold", *signed)


@QUICK
@given(nonce=st.integers(0, UNLIMITED), other=st.integers(0, UNLIMITED))
def test_C03_a_used_nonce_uses_up_no_other(scene: Scene, nonce: int, other: int) -> None:
    before = scene.chain.snapshot()
    args = only(scene.do("alice", "cancelNonce", nonce), "NonceCancelled")
    assert args == {"account": address("alice"), "nonce": nonce}
    assert scene.view("nonceUsed", address("alice"), nonce)
    assert scene.view("nonceUsed", address("alice"), other) == (other == nonce)
    assert not scene.view("nonceUsed", address("anna"), nonce)
    scene.refuses("NonceUsed", "settler", "openHold", *scene.authorize(nonce=nonce))
    scene.chain.revert(before)


def test_C03_a_used_nonce_uses_up_none_that_differs_in_one_bit(scene: Scene) -> None:
    nonce = UNLIMITED // 3
    scene.do("alice", "cancelNonce", nonce)
    assert [bit for bit in range(256) if scene.view("nonceUsed", address("alice"), nonce ^ (1 << bit))] == []


# ------------------------------------------------------------------ C4


def twisted(signature: bytes) -> list[bytes]:
    """Other bytes that a careless check would take for the same signature."""
    r, s, v = signature[:32], int.from_bytes(signature[32:64], "big"), signature[64]
    high = (CURVE_ORDER - s).to_bytes(32, "big")
    compact = ((v - 27) << 255 | s).to_bytes(32, "big")
    return [r + high + bytes([55 - v]), r + high + bytes([v]), r + signature[32:64] + bytes([55 - v]), r + compact, b"",
            bytes(65), signature + b"\0", r + signature[32:64] + bytes([v - 27])]  # fmt: skip


def test_C04_a_malleated_signature_is_refused(scene: Scene) -> None:
    scene.open_hold(job="first")
    scene.register()
    scene.do("alice", "deposit", 10_000)
    for bad in twisted(scene.authorize().signature):
        scene.refuses("BadSignature", "settler", "openHold", scene.authorize().message, bad)
    for bad in twisted(scene.receipt("first").signature):
        scene.refuses("BadSignature", "settler", "settleLease", scene.receipt("first").message, bad, [])
    for bad in twisted(scene.delegate("ben").signature):
        scene.refuses("BadSignature", "settler", "registerReceiptKey", scene.delegate("ben").message, bad)


def test_C04_the_zero_address_signs_nothing(scene: Scene) -> None:
    job, _, *rest = scene.authorize().message
    for bad in (b"", bytes(65), bytes(64) + b"\x1b", b"\xff" * 65):
        scene.refuses("BadSignature", "settler", "openHold", (job, ZERO, *rest), bad)
        scene.refuses("BadSignature", "settler", "registerReceiptKey", (ZERO, *scene.delegate().message[1:]), bad)


# ------------------------------------------------------------------ C8


@pytest.mark.parametrize("function", ["depositWithPermit", "buyCreditsWithPermit"])
def test_C08_a_permit_that_somebody_used_first_still_deposits(scene: Scene, function: str) -> None:
    scene.chain.do(scene.token, "alice", "approve", scene.escrow.address, 0)
    deadline = scene.now() + DAY
    permit = scene.permit("alice", 900, deadline)
    to = address("anna") if function == "depositWithPermit" else id32("organisation")
    scene.chain.do(scene.token, "mallory", "permit", address("alice"), scene.escrow.address, 900, deadline, *permit)
    scene.do("alice", function, to, 900, deadline, *permit)
    assert scene.view("totalLiabilities") == 900
    scene.refuses("ERC20InsufficientAllowance", "alice", function, to, 1, deadline, *permit)


def test_C08_a_permit_that_nobody_touched_deposits_too(scene: Scene) -> None:
    scene.chain.do(scene.token, "alice", "approve", scene.escrow.address, 0)
    deadline = scene.now() + DAY
    scene.do("alice", "depositWithPermit", address("alice"), 900, deadline, *scene.permit("alice", 900, deadline))
    assert scene.available("alice") == 900


def test_C08_a_permit_seen_by_mallory_pays_nothing_of_hers(scene: Scene) -> None:
    scene.chain.do(scene.token, "alice", "approve", scene.escrow.address, 0)
    scene.chain.do(scene.token, "mallory", "approve", scene.escrow.address, 0)
    deadline = scene.now() + DAY
    permit = scene.permit("alice", 900, deadline)
    scene.refuses(
        "ERC20InsufficientAllowance", "mallory", "depositWithPermit", address("mallory"), 900, deadline, *permit
    )
