"""Attacks on payouts: C12, C13."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from web3 import Web3

from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import address
from tests.unit.billing.contract.scene import (
    FUNDS,
    QUICK,
    UNLIMITED,
    Scene,
)

# ------------------------------------------------------------------ C12


def test_C12_a_root_published_twice_pays_once(scene: Scene) -> None:
    scene.buy_credits(5_000)
    leaves = scene.publish({"bob": 3_000})
    scene.claim(leaves, "bob", 3_000)
    again = scene.publish({"bob": 3_000})
    scene.refuses("NothingToClaim", "bob", "claim", address("bob"), 3_000, merkle.proof(again, again[0]))
    assert scene.view("claimedTotal") == 3_000


def test_C12_a_total_that_is_too_small_limits_what_is_claimed(scene: Scene) -> None:
    scene.buy_credits(10_000)
    leaves = scene.publish({"bob": 3_000, "mallory": 4_000}, total=5_000)
    scene.claim(leaves, "bob", 3_000)
    proof = merkle.proof(leaves, scene.leaf("mallory", 4_000))
    scene.refuses("ExceedsCredits", "mallory", "claim", address("mallory"), 4_000, proof)
    assert scene.view("creditPool") == 7_000


def test_C12_a_total_beyond_the_credits_or_below_the_last_is_refused(scene: Scene) -> None:
    scene.buy_credits(5_000)
    scene.refuses("ExceedsCredits", "publisher", "proposeRoot", b"\x01" * 32, 5_001)
    scene.publish({"bob": 2_000})
    scene.refuses("SumMismatch", "publisher", "proposeRoot", b"\x01" * 32, 1_999)


@QUICK
@given(data=st.data())
def test_C12_no_other_proof_leads_to_the_root(promised: tuple[Scene, list[bytes]], data: st.DataObject) -> None:
    scene, leaves = promised
    name, cumulative = data.draw(st.sampled_from([("bob", 100), ("ben", 200), ("mallory", 300)]))
    proof = merkle.proof(leaves, scene.leaf(name, cumulative))
    nodes = [node for level in merkle.levels(leaves) for node in level]
    other = data.draw(st.lists(st.sampled_from(nodes) | st.binary(min_size=32, max_size=32), max_size=5))
    if other != proof:
        scene.refuses("BadProof", "mallory", "claim", address(name), cumulative, other)
    more = data.draw(st.integers(0, UNLIMITED).filter(lambda amount: amount != cumulative))
    scene.refuses("BadProof", "mallory", "claim", address(name), more, proof)
    scene.chain.call(scene.escrow, "mallory", "claim", address(name), cumulative, proof)


def test_C12_an_inner_node_passes_for_no_leaf(promised: tuple[Scene, list[bytes]]) -> None:
    """The second preimage: with leaves hashed once, 64 bytes of two children would be a leaf of the same hash."""
    scene, leaves = promised
    first, second = sorted(leaves)[:2]
    inner = merkle.pair(first, second)
    assert inner in merkle.levels(leaves)[1]
    assert merkle.keccak(first + second) == inner
    account, cumulative = Web3.to_checksum_address(first[-20:]), int.from_bytes(second, "big")
    upper = [level for level in merkle.levels(leaves)[1] if level != inner]
    scene.refuses("BadProof", "mallory", "claim", account, cumulative, upper)
    scene.refuses("BadProof", "mallory", "claim", account, cumulative, [])


# ------------------------------------------------------------------ C13


def test_C13_a_second_claim_pays_nothing(scene: Scene) -> None:
    scene.buy_credits(9_000)
    leaves = scene.publish({"bob": 3_000, "ben": 10})
    scene.claim(leaves, "bob", 3_000)
    for who in ("bob", "mallory"):
        scene.refuses(
            "NothingToClaim", who, "claim", address("bob"), 3_000, merkle.proof(leaves, scene.leaf("bob", 3_000))
        )
    lower = scene.publish({"bob": 2_000, "ben": 1_010})
    scene.refuses(
        "NothingToClaim", "bob", "claim", address("bob"), 2_000, merkle.proof(lower, scene.leaf("bob", 2_000))
    )
    scene.refuses("BadProof", "bob", "claim", address("bob"), 3_000, merkle.proof(leaves, scene.leaf("bob", 3_000)))
    assert scene.balance("bob") == FUNDS + 3_000
