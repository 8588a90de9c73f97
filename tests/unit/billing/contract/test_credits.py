"""Credits and cumulative roots: who may be promised what, from when on."""

from __future__ import annotations

import pytest

from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import Chain, address
from tests.unit.billing.contract.scene import DAY, ZERO, Scene, id32, only

ROOT = b"\x01" * 32


def test_credits_are_an_accounts(scene: Scene) -> None:
    args = only(scene.do("alice", "buyCredits", id32("organisation"), 700), "CreditsBought")
    assert args == {"account": id32("organisation"), "payer": address("alice"), "amount": 700}
    scene.refuses("NotAllowed", "alice", "buyCredits", bytes(32), 700)
    scene.refuses("ZeroAmount", "alice", "buyCredits", id32("organisation"), 0)


def test_credits_are_bought_with_a_permit(scene: Scene) -> None:
    scene.chain.do(scene.token, "alice", "approve", scene.escrow.address, 0)
    deadline = scene.now() + DAY
    permit = scene.permit("alice", 900, deadline)
    scene.do("alice", "buyCreditsWithPermit", id32("organisation"), 900, deadline, *permit)
    assert scene.view("creditPool") == 900


@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_a_root_opens_after_its_delay_and_not_before(scene: Scene, seconds: int) -> None:
    scene.buy_credits(1_000)
    leaf = scene.leaf("bob", 1_000)
    args = only(scene.do("publisher", "proposeRoot", leaf, 1_000), "RootProposed")
    active_at = args["activeAt"]
    assert args == {"root": leaf, "total": 1_000, "activeAt": scene.now() - 1 + scene.terms.root_delay_seconds}
    scene.chain.at(active_at + seconds)
    if seconds < 0:
        assert scene.view("proposedRoot") == [leaf, 1_000, active_at]
        assert scene.view("activeRoot") == [bytes(32), 0]
        scene.refuses("BadProof", "bob", "claim", address("bob"), 1_000, [])
        scene.refuses("RootPending", "publisher", "proposeRoot", ROOT, 1_000)
        assert only(scene.do("arbiter", "vetoRoot"), "RootVetoed") == {"root": leaf}
    else:
        assert scene.view("proposedRoot") == [bytes(32), 0, 0]
        assert scene.view("activeRoot") == [leaf, 1_000]
        scene.refuses("TooLate", "arbiter", "vetoRoot")
        scene.do("bob", "claim", address("bob"), 1_000, [])


def test_a_vetoed_root_never_opens_and_takes_nothing_of_the_day(chain: Chain) -> None:
    scene = Scene.make(chain, root_daily_cap=1_000)
    scene.buy_credits(5_000)
    scene.do("publisher", "proposeRoot", scene.leaf("mallory", 1_000), 1_000)
    scene.do("pauser", "vetoRoot")
    scene.refuses("TooLate", "pauser", "vetoRoot")
    leaves = scene.publish({"bob": 1_000})
    scene.refuses("BadProof", "mallory", "claim", address("mallory"), 1_000, [])
    scene.claim(leaves, "bob", 1_000)


def test_promises_grow_by_no_more_than_a_day_allows(chain: Chain) -> None:
    scene = Scene.make(chain, root_daily_cap=1_000, root_delay_seconds=60)
    scene.buy_credits(5_000)
    midnight = (scene.now() // DAY + 1) * DAY
    scene.chain.at(midnight)
    scene.refuses("ExceedsDailyCap", "publisher", "proposeRoot", ROOT, 1_001)
    scene.publish({"bob": 600})
    scene.refuses("ExceedsDailyCap", "publisher", "proposeRoot", ROOT, 1_001)
    scene.publish({"bob": 1_000})
    scene.chain.at(midnight + DAY - 1)
    scene.refuses("ExceedsDailyCap", "publisher", "proposeRoot", ROOT, 1_001)
    scene.chain.at(midnight + DAY)
    scene.publish({"bob": 2_000})


def test_a_root_is_never_empty_and_pays_nobody_who_cannot_hold_tokens(scene: Scene) -> None:
    scene.buy_credits(1_000)
    scene.refuses("NotAllowed", "publisher", "proposeRoot", bytes(32), 0)
    for account in (ZERO, scene.escrow.address):
        leaf = merkle.payout_leaf(scene.chain.chain_id, scene.escrow.address, scene.token.address, account, 10)
        before = scene.chain.snapshot()
        scene.do("publisher", "proposeRoot", leaf, 10)
        scene.chain.at(scene.now() + scene.terms.root_delay_seconds)
        scene.refuses("NotAllowed", "mallory", "claim", account, 10, [])
        scene.chain.revert(before)


def test_a_leaf_of_another_chain_or_escrow_claims_nothing_here(scene: Scene) -> None:
    scene.buy_credits(1_000)
    token = scene.token.address
    for chain_id, escrow in ((1, scene.escrow.address), (scene.chain.chain_id, address("mallory"))):
        before = scene.chain.snapshot()
        leaf = merkle.payout_leaf(chain_id, escrow, token, address("bob"), 10)
        scene.do("publisher", "proposeRoot", leaf, 10)
        scene.chain.at(scene.now() + scene.terms.root_delay_seconds)
        scene.refuses("BadProof", "bob", "claim", address("bob"), 10, [])
        scene.chain.revert(before)


def test_a_second_claim_is_paid_what_was_added_since_the_first(scene: Scene) -> None:
    scene.buy_credits(5_000)
    before = scene.balance(address("bob"))
    scene.claim(scene.publish({"bob": 100, "ben": 1_000}), "bob", 100)
    [claimed] = scene.claim(scene.publish({"bob": 250, "ben": 1_000}), "bob", 250)
    assert claimed.args == {"account": address("bob"), "amount": 150, "cumulative": 250}
    assert scene.balance(address("bob")) == before + 250
