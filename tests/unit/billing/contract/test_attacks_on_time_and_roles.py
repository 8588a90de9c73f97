"""Attacks on deadlines, on the pause and on roles: C14, C15, C16."""

from __future__ import annotations

from typing import Any

import pytest
from web3 import Web3

from tests.unit.billing.contract.chain import address
from tests.unit.billing.contract.scene import (
    DAY,
    EVIDENCE,
    HOLD_DEADLINE,
    ZERO,
    Scene,
    id32,
    only,
)

# ------------------------------------------------------------------ C14


@pytest.mark.parametrize("seconds", [-2, -1, 0, 1, 2])
def test_C14_at_every_second_either_the_settler_or_the_refund_has_the_hold(running: Scene, seconds: int) -> None:
    deadline = running.view("holds", address("alice"), id32("job"))[HOLD_DEADLINE]
    receipt = running.receipt()
    running.chain.at(deadline + running.terms.grace_seconds + seconds)
    if seconds <= 0:
        running.refuses("TooEarly", "mallory", "refundExpired", address("alice"), id32("job"))
        running.do("settler", "settleLease", *receipt, [])
    else:
        running.refuses("TooLate", "settler", "settleLease", *receipt, [])
        args = only(running.do("mallory", "refundExpired", address("alice"), id32("job")), "HoldClosed")
        assert args == {"jobId": id32("job"), "customer": address("alice"), "refunded": 10_000, "expired": True}
        running.refuses("HoldIsClosed", "settler", "settleLease", *receipt, [])


@pytest.mark.parametrize("seconds", [-2, -1, 0, 1, 2])
def test_C14_at_every_second_a_lease_is_either_open_to_challenge_or_final(scene: Scene, seconds: int) -> None:
    scene.chain.at(scene.settled_lease() + seconds)
    if seconds < 0:
        scene.refuses("TooEarly", "bob", "finalize", address("alice"), id32("lease"))
        scene.do("alice", "challenge", id32("lease"), EVIDENCE)
    else:
        scene.refuses("TooLate", "alice", "challenge", id32("lease"), EVIDENCE)
        scene.do("bob", "finalize", address("alice"), id32("lease"))


@pytest.mark.parametrize("seconds", [-2, -1, 0, 1, 2])
def test_C14_at_every_second_a_dispute_is_either_the_arbiters_or_run_out(scene: Scene, seconds: int) -> None:
    release_at = scene.settled_lease()
    scene.do("alice", "challenge", id32("lease"), EVIDENCE)
    scene.chain.at(release_at + scene.terms.dispute_seconds + seconds)
    if seconds < 0:
        scene.refuses("Disputed", "bob", "finalize", address("alice"), id32("lease"))
        scene.do("arbiter", "resolve", address("alice"), id32("lease"), 0, 1_000)
    else:
        scene.refuses("TooLate", "arbiter", "resolve", address("alice"), id32("lease"), 0, 1_000)
        assert only(scene.do("bob", "finalize", address("alice"), id32("lease")), "LeaseFinalized")["paid"] == 950


@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_C14_an_authorization_opens_until_its_deadline(scene: Scene, seconds: int) -> None:
    signed = scene.authorize()
    scene.do("alice", "deposit", 10_000)
    scene.chain.at(signed.message[7] + seconds)
    if seconds <= 0:
        scene.do("settler", "openHold", *signed)
    else:
        scene.refuses("TooLate", "settler", "openHold", *signed)


# ------------------------------------------------------------------ C15


def test_C15_a_pause_traps_nothing(scene: Scene) -> None:
    for job in ("disputed", "waiting", "open", "expired"):
        scene.open_hold(job=job, hours=1)
    scene.register()
    for job in ("disputed", "waiting"):
        scene.settle(job=job, lease=job)
    scene.do("bob", "stake", 500)
    scene.buy_credits(1_000)
    leaves = scene.publish({"bob": 900})
    scene.do("alice", "deposit", 10)

    scene.do("pauser", "pause")
    scene.do("bob", "requestUnstake", 500)
    scene.settle(job="open", lease="late")
    scene.do("alice", "challenge", id32("late"), EVIDENCE)
    scene.do("arbiter", "resolve", address("alice"), id32("late"), 500, 500)
    scene.do("settler", "closeHold", address("alice"), id32("open"))
    scene.chain.at(scene.now() + scene.terms.challenge_seconds)
    scene.do("mallory", "finalize", address("alice"), id32("disputed"))
    scene.do("mallory", "finalize", address("alice"), id32("waiting"))
    scene.claim(leaves, "bob", 900)
    scene.chain.at(
        scene.view("holds", address("alice"), id32("expired"))[HOLD_DEADLINE] + scene.terms.grace_seconds + 1
    )
    for job in ("disputed", "waiting", "expired"):
        scene.do("mallory", "refundExpired", address("alice"), id32(job))
    scene.chain.at(scene.now() + scene.terms.unstake_seconds)
    scene.do("bob", "unstake")
    for name in ("alice", "bob"):
        scene.do(name, "withdraw", scene.available(name) - 1)
        scene.do(name, "withdrawTo", address("ben"), 1)
    scene.do("fee", "withdraw", scene.available("fee"))
    assert scene.view("totalLiabilities") == scene.view("creditPool") == 100


def test_C15_a_pause_stops_money_from_coming_in_until_it_ends(scene: Scene) -> None:
    scene.do("pauser", "pause")
    deadline = scene.now() + DAY
    permit = scene.permit("alice", 1, deadline)
    calls: list[tuple[str, str, tuple[Any, ...]]] = [
        ("alice", "deposit", (1,)),
        ("alice", "depositFor", (address("anna"), 1)),
        ("alice", "depositWithPermit", (address("anna"), 1, deadline, *permit)),
        ("alice", "buyCredits", (id32("organisation"), 1)),
        ("alice", "buyCreditsWithPermit", (id32("organisation"), 1, deadline, *permit)),
        ("settler", "openHold", scene.authorize()),
        ("publisher", "proposeRoot", (b"\x01" * 32, 0)),
        ("bob", "stake", (1,)),
        ("pauser", "pause", ()),
    ]
    for who, function, args in calls:
        scene.refuses("EnforcedPause", who, function, *args)
    scene.do("pauser", "unpause")
    scene.do("alice", "deposit", 1)
    scene.refuses("ExpectedPause", "pauser", "unpause")


# ------------------------------------------------------------------ C16


def test_C16_the_admin_changes_in_two_steps_and_two_days(scene: Scene) -> None:
    admin_role = bytes(32)
    scene.refuses("AccessControlEnforcedDefaultAdminRules", "admin", "grantRole", admin_role, address("mallory"))
    scene.refuses("AccessControlUnauthorizedAccount", "mallory", "beginDefaultAdminTransfer", address("mallory"))
    begun = scene.now()
    scene.do("admin", "beginDefaultAdminTransfer", address("ben"))
    scene.refuses("AccessControlInvalidDefaultAdmin", "mallory", "acceptDefaultAdminTransfer")
    for seconds in (0, 1, 2 * DAY - 1, 2 * DAY):
        scene.chain.at(max(scene.now(), begun + seconds))
        scene.refuses("AccessControlEnforcedDefaultAdminDelay", "ben", "acceptDefaultAdminTransfer")
    scene.chain.at(begun + 2 * DAY + 1)
    assert scene.view("defaultAdmin") == address("admin")
    scene.do("ben", "acceptDefaultAdminTransfer")
    assert scene.view("defaultAdmin") == address("ben")
    scene.refuses("AccessControlUnauthorizedAccount", "admin", "sweepSurplus", address("admin"))


def test_C16_a_transfer_under_way_can_be_cancelled(scene: Scene) -> None:
    scene.do("admin", "beginDefaultAdminTransfer", address("mallory"))
    scene.do("admin", "cancelDefaultAdminTransfer")
    scene.chain.at(scene.now() + 3 * DAY)
    scene.refuses("AccessControlInvalidDefaultAdmin", "mallory", "acceptDefaultAdminTransfer")


def test_C16_the_delay_itself_shrinks_only_after_a_delay(scene: Scene) -> None:
    scene.do("admin", "changeDefaultAdminDelay", 0)
    assert scene.view("defaultAdminDelay") == 2 * DAY
    begun = scene.now()
    scene.do("admin", "beginDefaultAdminTransfer", address("ben"))
    scene.chain.at(begun + 2 * DAY)
    scene.refuses("AccessControlEnforcedDefaultAdminDelay", "ben", "acceptDefaultAdminTransfer")


def test_C16_no_role_gives_out_another(scene: Scene) -> None:
    for name in ("settler", "publisher", "arbiter", "slasher", "pauser", "mallory"):
        for role in ("settler", "arbiter"):
            scene.refuses(
                "AccessControlUnauthorizedAccount",
                name,
                "grantRole",
                Web3.keccak(text=role.upper()),
                address("mallory"),
            )


def test_C16_a_role_is_granted_only_after_its_delay_and_not_for_ever(scene: Scene) -> None:
    role, her = scene.view("SETTLER"), address("mallory")
    scene.refuses("NotAllowed", "admin", "grantRole", role, her)
    begun = scene.now()
    args = only(scene.do("admin", "proposeRole", role, her), "RoleProposed")
    assert args == {"role": role, "account": her, "activeAt": begun + 2 * DAY}
    for seconds, error in ((1, "TooEarly"), (2 * DAY - 1, "TooEarly"), (16 * DAY + 1, "TooLate")):
        before = scene.chain.snapshot()
        scene.chain.at(begun + seconds)
        scene.refuses(error, "admin", "grantRole", role, her)
        scene.chain.revert(before)
    scene.refuses("NotAllowed", "admin", "grantRole", scene.view("ARBITER"), her)
    scene.chain.at(begun + 2 * DAY)
    scene.do("admin", "grantRole", role, her)
    assert scene.view("hasRole", role, her)
    scene.do("admin", "revokeRole", role, her)  # at once
    scene.refuses("NotAllowed", "admin", "grantRole", role, her)  # what was proposed is used up


@pytest.mark.parametrize("who", ["admin", "arbiter", "pauser"])
def test_C16_a_role_that_a_stolen_admin_key_proposes_is_vetoed(scene: Scene, who: str) -> None:
    role, her = scene.view("ARBITER"), address("mallory")
    scene.refuses("NotAllowed", who, "vetoRole", role, her)
    scene.do("admin", "proposeRole", role, her)
    for name in ("settler", "publisher", "slasher", "mallory"):
        scene.refuses("NotAllowed", name, "vetoRole", role, her)
    assert only(scene.do(who, "vetoRole", role, her), "RoleVetoed") == {"role": role, "account": her}
    scene.chain.at(scene.now() + 3 * DAY)
    scene.refuses("NotAllowed", "admin", "grantRole", role, her)


def test_C16_neither_nobody_nor_the_admin_is_appointed_by_a_proposal(scene: Scene) -> None:
    scene.refuses("NotAllowed", "admin", "proposeRole", scene.view("SETTLER"), ZERO)
    refusal = "AccessControlEnforcedDefaultAdminRules"
    scene.refuses(refusal, "admin", "proposeRole", bytes(32), address("mallory"))


def test_C16_a_repeated_proposal_waits_anew(scene: Scene) -> None:
    role, ben = scene.view("PAUSER"), address("ben")
    scene.do("admin", "proposeRole", role, ben)
    scene.chain.at(scene.now() + DAY)
    again = only(scene.do("admin", "proposeRole", role, ben), "RoleProposed")["activeAt"]
    scene.chain.at(again - 1)
    scene.refuses("TooEarly", "admin", "grantRole", role, ben)


def test_a_role_may_have_no_holder_at_first(scene: Scene) -> None:
    holders = (address("settler"), *[ZERO] * 4)
    made = scene.chain.deploy("GpuEscrow", tuple(scene.terms), holders)
    assert scene.chain.view(made, "hasRole", scene.view("SETTLER"), address("settler"))
    assert not scene.chain.view(made, "hasRole", scene.view("PAUSER"), ZERO)
