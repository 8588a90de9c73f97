"""Money that comes in, stays whose it is, and goes out."""

from __future__ import annotations

from tests.unit.billing.contract.chain import address
from tests.unit.billing.contract.scene import FUNDS, Scene, id32, only


def test_a_deposit_is_available_to_its_beneficiary(scene: Scene) -> None:
    args = only(scene.do("alice", "depositFor", address("anna"), 700), "Deposited")
    assert args == {"beneficiary": address("anna"), "payer": address("alice"), "amount": 700}
    assert (scene.available("anna"), scene.available("alice")) == (700, 0)
    assert scene.balance("alice") == FUNDS - 700
    assert scene.balance(scene.escrow.address) == scene.view("totalLiabilities") == 700


def test_what_is_available_can_be_withdrawn_to_the_last_unit(scene: Scene) -> None:
    scene.do("alice", "deposit", 700)
    args = only(scene.do("alice", "withdraw", 300), "Withdrawn")
    assert args == {"account": address("alice"), "to": address("alice"), "amount": 300}
    args = only(scene.do("alice", "withdrawTo", address("ben"), 400), "Withdrawn")
    assert args == {"account": address("alice"), "to": address("ben"), "amount": 400}
    scene.refuses("InsufficientAvailable", "alice", "withdraw", 1)
    assert scene.view("totalLiabilities") == scene.balance(scene.escrow.address) == 0


def test_a_whole_job_from_deposit_to_withdrawal(scene: Scene) -> None:
    release_at = scene.settled_lease()
    scene.do("settler", "closeHold", address("alice"), id32("job"))
    scene.chain.at(release_at)
    args = only(scene.do("mallory", "finalize", address("alice"), id32("lease")), "LeaseFinalized")
    assert (args["paid"], args["fee"]) == (950, 50)
    for name, amount in (("bob", 950), ("fee", 50), ("alice", 9_000)):
        before = scene.balance(name)
        scene.do(name, "withdraw", amount)
        assert scene.balance(name) == before + amount
    assert scene.view("totalLiabilities") == scene.balance(scene.escrow.address) == 0


def test_credits_and_payouts(scene: Scene) -> None:
    scene.buy_credits(5_000)
    leaves = scene.publish({"bob": 3_000, "ben": 1_000})
    assert only(scene.claim(leaves, "bob", 3_000), "Claimed")["amount"] == 3_000
    leaves = scene.publish({"bob": 3_500, "ben": 1_000})
    args = only(scene.claim(leaves, "bob", 3_500), "Claimed")
    assert args == {"account": address("bob"), "amount": 500, "cumulative": 3_500}
    assert scene.balance("bob") == FUNDS + 3_500
    assert scene.view("creditPool") == scene.balance(scene.escrow.address) == 1_500
