"""Attacks by the token, and what others give to the contract: C1, C9, C10, C11, C17."""

from __future__ import annotations

from typing import Any

import pytest
from web3 import Web3

from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import Chain, address, build
from tests.unit.billing.contract.scene import (
    UNLIMITED,
    ZERO,
    Scene,
    books,
    id32,
    only,
)

REENTERED = bytes(Web3.keccak(text="ReentrancyGuardReentrantCall()")[:4])
INHERITED = {  # OpenZeppelin's own, which move no money
    "grantRole", "revokeRole", "renounceRole", "beginDefaultAdminTransfer", "cancelDefaultAdminTransfer",
    "acceptDefaultAdminTransfer", "changeDefaultAdminDelay", "rollbackDefaultAdminDelay",
}  # fmt: skip
CHANGING = [
    entry
    for entry in build("GpuEscrow")["abi"]
    if entry["type"] == "function" and entry["stateMutability"] == "nonpayable" and entry["name"] not in INHERITED
]
EMPTY: dict[str, Any] = {"address": ZERO, "bytes32": bytes(32), "bytes": b"", "bytes32[]": []}


def nothing(inputs: list[dict[str, Any]]) -> list[Any]:
    """Arguments that are all zero."""
    return [
        tuple(nothing(each["components"])) if each["type"] == "tuple" else EMPTY.get(each["type"], 0) for each in inputs
    ]


# ------------------------------------------------------------------ C1


@pytest.mark.parametrize("is_before", [True, False], ids=["before it moves", "after it moved"])
@pytest.mark.parametrize("entry", CHANGING, ids=[entry["name"] for entry in CHANGING])
def test_C01_a_token_that_calls_back_finds_every_function_locked(
    shared_hostile: Scene, entry: dict[str, Any], is_before: bool
) -> None:
    scene = shared_hostile
    data = scene.escrow.encode_abi(entry["name"], nothing(entry["inputs"]))
    for who, function, args in (
        ("alice", "deposit", (100,)),
        ("alice", "withdraw", (100,)),
        ("bob", "stake", (10,)),
        ("alice", "buyCredits", (id32("organisation"), 10)),
    ):
        scene.chain.do(scene.token, "mallory", "setHook", scene.escrow.address, data, is_before)
        scene.do(who, function, *args)
        assert scene.chain.view(scene.token, "wasCalled")
        assert scene.chain.view(scene.token, "answer") == REENTERED, entry["name"]
        assert not scene.chain.view(scene.token, "didSucceed")
    assert books(scene) == [0, 0, 0, 10, 0, 10, 20]


def test_C01_one_transfer_is_never_credited_twice(hostile: Scene) -> None:
    """Mallory's token deposits in its own name from within Mallory's deposit: both would count the same tokens."""
    scene = hostile
    scene.chain.do(scene.token, "mallory", "mint", scene.token.address, 500)
    allow = scene.token.encode_abi("approve", [scene.escrow.address, UNLIMITED])
    scene.chain.do(scene.token, "mallory", "act", scene.token.address, bytes.fromhex(allow[2:]))
    inner = scene.escrow.encode_abi("deposit", [500])
    scene.chain.do(scene.token, "mallory", "setHook", scene.escrow.address, inner, True)
    scene.do("mallory", "deposit", 700)
    assert scene.chain.view(scene.token, "answer") == REENTERED
    assert books(scene) == [700, 0, 0, 0, 0, 0, 700]


# ------------------------------------------------------------------ C9


@pytest.mark.parametrize("percent", [1, 50])
def test_C09_what_a_fee_on_transfer_leaves_is_what_is_credited(hostile: Scene, percent: int) -> None:
    hostile.chain.do(hostile.token, "mallory", "setFee", percent)
    left = 1_000 - 10 * percent
    assert only(hostile.do("alice", "deposit", 1_000), "Deposited")["amount"] == left
    assert only(hostile.do("alice", "buyCredits", id32("organisation"), 1_000), "CreditsBought")["amount"] == left
    assert only(hostile.do("bob", "stake", 1_000), "Staked")["amount"] == left
    assert books(hostile) == [left, 0, 0, left, 0, left, 3 * left]


def test_C09_a_token_that_delivers_nothing_or_too_much_is_refused(hostile: Scene) -> None:
    hostile.chain.do(hostile.token, "mallory", "setFee", 100)
    hostile.refuses("UnexpectedBalance", "alice", "deposit", 1_000)
    hostile.chain.do(hostile.token, "mallory", "setFee", 0)
    hostile.chain.do(hostile.token, "mallory", "setBonus", 1)
    hostile.refuses("UnexpectedBalance", "alice", "deposit", 1_000)


def test_C09_a_token_that_takes_more_than_is_sent_cannot_be_paid_by_others(hostile: Scene) -> None:
    hostile.do("alice", "deposit", 1_000)
    hostile.do("mallory", "deposit", 500)
    hostile.chain.do(hostile.token, "mallory", "setSurcharge", 100)
    hostile.refuses("UnexpectedBalance", "mallory", "withdraw", 500)
    hostile.chain.do(hostile.token, "mallory", "setSurcharge", 0)
    hostile.do("mallory", "withdraw", 500)
    hostile.do("alice", "withdraw", 1_000)


def test_C09_a_rebase_never_changes_what_is_owed(chain: Chain) -> None:
    scene = Scene.make(chain, "ScalingToken")
    scene.do("alice", "deposit", 1_000)
    scene.do("anna", "deposit", 1_000)
    chain.do(scene.token, "mallory", "scale", 200)
    assert scene.view("totalLiabilities") == 2_000
    scene.do("admin", "sweepSurplus", address("fee"))  # what the rebase made belongs to nobody
    assert scene.balance(scene.escrow.address) == 2_000
    chain.do(scene.token, "mallory", "scale", 100)  # it takes half away: whoever comes first is paid, the books stay
    scene.do("alice", "withdraw", 1_000)
    scene.refuses("Panic error 0x11", "anna", "withdraw", 1_000)
    scene.refuses("UnexpectedBalance", "admin", "sweepSurplus", address("fee"))
    assert scene.available("anna") == scene.view("totalLiabilities") == 1_000


# ------------------------------------------------------------------ C10


def test_C10_a_token_that_answers_nothing_works(chain: Chain) -> None:
    scene = Scene.make(chain, "NoReturnToken")
    scene.do("alice", "deposit", 1_000)
    scene.do("bob", "stake", 50)
    scene.buy_credits(70)
    leaves = scene.publish({"bob": 70})
    scene.claim(leaves, "bob", 70)
    scene.do("alice", "withdraw", 1_000)
    assert books(scene) == [0, 0, 0, 50, 0, 0, 50]


def test_C10_a_token_that_answers_false_moves_nothing(hostile: Scene) -> None:
    hostile.do("alice", "deposit", 1_000)
    hostile.chain.do(hostile.token, "mallory", "setAnswersFalse", True)
    before = books(hostile)
    hostile.refuses("SafeERC20FailedOperation", "alice", "deposit", 1)
    hostile.refuses("SafeERC20FailedOperation", "alice", "withdraw", 1)
    hostile.refuses("SafeERC20FailedOperation", "alice", "stake", 1)
    hostile.refuses("SafeERC20FailedOperation", "alice", "buyCredits", id32("organisation"), 1)
    assert books(hostile) == before


# ------------------------------------------------------------------ C11


def test_C11_a_blacklisted_provider_blocks_nobody_else(hostile: Scene) -> None:
    release_at = hostile.settled_lease()
    hostile.buy_credits(1_000)
    leaves = hostile.publish({"bob": 400, "ben": 600})
    hostile.chain.do(hostile.token, "mallory", "setBlacklisted", address("bob"), True)
    hostile.chain.at(max(release_at, hostile.now()) + 1)
    hostile.do("mallory", "finalize", address("alice"), id32("lease"))
    hostile.refuses("blacklisted", "bob", "withdraw", 950)
    hostile.refuses(
        "blacklisted", "mallory", "claim", address("bob"), 400, merkle.proof(leaves, hostile.leaf("bob", 400))
    )
    hostile.claim(leaves, "ben", 600)
    hostile.do("fee", "withdraw", 50)
    hostile.do("bob", "withdrawTo", address("ben"), 950)  # his money is still his
    hostile.chain.do(hostile.token, "mallory", "setBlacklisted", address("bob"), False)
    hostile.claim(leaves, "bob", 400)


# ------------------------------------------------------------------ C17


def test_C17_a_gift_changes_no_book_and_only_the_surplus_can_be_swept(scene: Scene) -> None:
    scene.do("alice", "deposit", 1_000)
    scene.refuses("ZeroAmount", "admin", "sweepSurplus", address("fee"))
    before = books(scene)
    scene.chain.do(scene.token, "mallory", "transfer", scene.escrow.address, 77)
    assert books(scene) == [*before[:-1], 1_077]
    assert only(scene.do("anna", "deposit", 5), "Deposited")["amount"] == 5
    scene.refuses("AccessControlUnauthorizedAccount", "settler", "sweepSurplus", address("settler"))
    for to in (ZERO, scene.escrow.address):
        scene.refuses("NotAllowed", "admin", "sweepSurplus", to)
    args = only(scene.do("admin", "sweepSurplus", address("fee")), "SurplusSwept")
    assert args == {"to": address("fee"), "amount": 77}
    assert scene.balance("fee") == 77
    scene.refuses("ZeroAmount", "admin", "sweepSurplus", address("fee"))
    assert scene.view("totalLiabilities") == scene.balance(scene.escrow.address) == 1_005
