"""What only a role may do is refused to everybody else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.billing.contract.chain import NAMES, address
from tests.unit.billing.contract.scene import EVIDENCE, Scene, id32

ONLY: list[tuple[str, str, tuple[Any, ...]]] = [
    (
        "settler",
        "closeHold",
        (
            address("alice"),
            id32("job"),
        ),
    ),
    ("arbiter", "resolve", (address("alice"), id32("lease"), 0, 1_000)),
    ("arbiter", "compensate", (address("alice"), 1, id32("offence"))),
    ("slasher", "slash", (address("bob"), 1, id32("offence"), EVIDENCE)),
    ("publisher", "proposeRoot", (b"\x01" * 32, 0)),
    ("pauser", "pause", ()),
    ("pauser", "unpause", ()),
    ("admin", "sweepSurplus", (address("fee"),)),
    ("admin", "grantRole", (b"\x01" * 32, address("mallory"))),
    ("admin", "proposeRole", (b"\x01" * 32, address("mallory"))),
]


@pytest.mark.parametrize(("role", "function", "args"), ONLY, ids=[function for _, function, _ in ONLY])
def test_only_its_role_may(scene: Scene, role: str, function: str, args: tuple[Any, ...]) -> None:
    for name in NAMES:
        if name != role:
            scene.refuses("AccessControlUnauthorizedAccount", name, function, *args)


def test_only_the_settler_settles_and_only_settler_or_customer_opens(scene: Scene) -> None:
    scene.register()
    scene.do("alice", "deposit", 10_000)
    signed = scene.authorize()
    for name in NAMES:
        if name not in ("settler", "alice"):
            scene.refuses("NotAllowed", name, "openHold", *signed)
    scene.do("alice", "openHold", *signed)
    for name in NAMES:
        if name != "settler":
            scene.refuses("AccessControlUnauthorizedAccount", name, "settleLease", *scene.receipt(), [])


def test_only_arbiter_and_pauser_veto(scene: Scene) -> None:
    scene.buy_credits(10)
    scene.do("publisher", "proposeRoot", b"\x01" * 32, 10)
    for name in NAMES:
        if name not in ("arbiter", "pauser"):
            scene.refuses("NotAllowed", name, "vetoRoot")
    before = scene.chain.snapshot()
    for name in ("arbiter", "pauser"):
        scene.do(name, "vetoRoot")
        scene.chain.revert(before)


def test_a_revoked_role_may_nothing(scene: Scene) -> None:
    scene.open_hold()
    scene.do("admin", "revokeRole", scene.view("SETTLER"), address("settler"))
    scene.refuses("AccessControlUnauthorizedAccount", "settler", "closeHold", address("alice"), id32("job"))
