"""A provider's stake: added, requested back, slashed within caps, paid to those who were harmed."""

from __future__ import annotations

import pytest

from tests.unit.billing.contract.chain import address
from tests.unit.billing.contract.scene import DAY, EVIDENCE, FUNDS, ZERO, Scene, id32, only


def slash(scene: Scene, amount: int, offence: str) -> dict[str, object]:
    return only(scene.do("slasher", "slash", address("bob"), amount, id32(offence), EVIDENCE), "Slashed")


@pytest.mark.parametrize("seconds", [-1, 0])
def test_a_stake_comes_back_after_the_wait(scene: Scene, seconds: int) -> None:
    assert only(scene.do("bob", "stake", 3_000), "Staked") == {"provider": address("bob"), "amount": 3_000}
    args = only(scene.do("bob", "requestUnstake", 1_000), "UnstakeRequested")
    at = args["availableAt"]
    assert args == {"provider": address("bob"), "amount": 1_000, "availableAt": scene.now() - 1 + 7 * DAY}
    assert (scene.view("staked", address("bob")), scene.view("unstaking", address("bob"))) == (3_000, [1_000, at])
    scene.chain.at(at + seconds)
    if seconds < 0:
        scene.refuses("TooEarly", "bob", "unstake")
    else:
        assert only(scene.do("bob", "unstake"), "Unstaked") == {"provider": address("bob"), "amount": 1_000}
        assert scene.balance("bob") == FUNDS - 2_000
        scene.refuses("ZeroAmount", "bob", "unstake")


def test_a_second_request_waits_for_all_of_it(scene: Scene) -> None:
    scene.do("bob", "stake", 3_000)
    first = only(scene.do("bob", "requestUnstake", 1_000), "UnstakeRequested")["availableAt"]
    scene.chain.at(first - 10)
    scene.do("bob", "requestUnstake", 500)
    scene.chain.at(first)
    scene.refuses("TooEarly", "bob", "unstake")


def test_only_what_is_staked_can_be_asked_back(scene: Scene) -> None:
    scene.do("bob", "stake", 10)
    scene.refuses("ExceedsStake", "bob", "requestUnstake", 11)
    scene.refuses("ZeroAmount", "bob", "requestUnstake", 0)
    scene.refuses("ZeroAmount", "bob", "stake", 0)
    scene.refuses("ExceedsStake", "mallory", "requestUnstake", 1)


def test_what_is_leaving_can_still_be_slashed(scene: Scene) -> None:
    scene.do("bob", "stake", 1_000)
    at = only(scene.do("bob", "requestUnstake", 800), "UnstakeRequested")["availableAt"]
    args = slash(scene, 500, "offence")
    assert args == {"provider": address("bob"), "amount": 500, "offenceId": id32("offence"), "evidenceHash": EVIDENCE}
    assert scene.view("unstaking", address("bob")) == [500, at]
    scene.chain.at(at)
    assert only(scene.do("bob", "unstake"), "Unstaked")["amount"] == 500
    assert (scene.view("slashPool"), scene.view("totalStaked")) == (500, 0)


def test_an_offence_is_slashed_once_within_stake_offence_and_day(scene: Scene) -> None:
    scene.do("bob", "stake", 1_700)
    for error, args in (
        ("ZeroAmount", (address("bob"), 0, id32("first"), EVIDENCE)),
        ("ExceedsCap", (address("bob"), 1_001, id32("first"), EVIDENCE)),
        ("ExceedsStake", (address("ben"), 1, id32("first"), EVIDENCE)),
    ):
        scene.refuses(error, "slasher", "slash", *args)
    scene.chain.at((scene.now() // DAY + 1) * DAY)
    slash(scene, 1_000, "first")
    scene.refuses("OffenceKnown", "slasher", "slash", address("bob"), 1, id32("first"), EVIDENCE)
    scene.refuses("ExceedsDailyCap", "slasher", "slash", address("bob"), 501, id32("second"), EVIDENCE)
    slash(scene, 500, "second")
    scene.refuses("ExceedsDailyCap", "slasher", "slash", address("bob"), 1, id32("third"), EVIDENCE)
    scene.chain.at((scene.now() // DAY + 1) * DAY)
    scene.refuses("ExceedsStake", "slasher", "slash", address("bob"), 201, id32("third"), EVIDENCE)
    slash(scene, 200, "third")
    assert (scene.view("slashPool"), scene.view("staked", address("bob"))) == (1_700, 0)
    assert scene.view("offences", id32("third")) and not scene.view("offences", id32("fourth"))


def test_a_slash_compensates_customers_and_nobody_else(scene: Scene) -> None:
    scene.do("bob", "stake", 1_000)
    slash(scene, 600, "offence")
    scene.refuses("NotAllowed", "arbiter", "compensate", address("alice"), 1, id32("other"))
    scene.refuses("NotAllowed", "arbiter", "compensate", ZERO, 1, id32("offence"))
    scene.refuses("ZeroAmount", "arbiter", "compensate", address("alice"), 0, id32("offence"))
    scene.refuses("InsufficientAvailable", "arbiter", "compensate", address("alice"), 601, id32("offence"))
    args = only(scene.do("arbiter", "compensate", address("alice"), 600, id32("offence")), "Compensated")
    assert args == {"customer": address("alice"), "amount": 600, "offenceId": id32("offence")}
    scene.do("alice", "withdraw", 600)
    assert scene.balance("alice") == FUNDS + 600
