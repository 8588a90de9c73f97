"""What a thief with the settler's key gains: nothing of anybody's, and delay for everybody. C6.

Mallory has the settler's key and wallets of her own, which anybody may register as providers and fill as customers.
The customer's hold names the providers that it allows, as every hold does that the marketplace asks for.
"""

from __future__ import annotations

import pytest

from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import Chain, address
from tests.unit.billing.contract.scene import (
    DAY,
    EVIDENCE,
    FUNDS,
    HOUR,
    HOUR_MS,
    Scene,
    id32,
    receipt_key,
)

CLOSE_SECONDS = 6 * HOUR
HELD = 10_000
EARNED = 1_000
ALLOWED = [merkle.provider_leaf(address(name)) for name in ("bob", "ben")]


@pytest.fixture
def stolen(chain: Chain) -> Scene:
    """Alice's hold for Bob and Ben, who worked one hour; the thief has registered a wallet of her own."""
    scene = Scene.make(chain, close_seconds=CLOSE_SECONDS)
    scene.open_hold(hours=1, providersRoot=merkle.root(ALLOWED), deadline=scene.now() + 4 * DAY)
    scene.register()
    scene.register("mallory")
    return scene


def settle_bob(scene: Scene) -> None:
    scene.settle(*merkle.proof(ALLOWED, ALLOWED[0]))


def recover(scene: Scene) -> None:
    """The operator takes the role from the stolen key at once, and gives it to a new one after the delay."""
    scene.do("admin", "revokeRole", scene.view("SETTLER"), address("settler"))
    scene.do("admin", "proposeRole", scene.view("SETTLER"), address("ben"))
    scene.chain.at(scene.now() + 2 * DAY)
    scene.do("admin", "grantRole", scene.view("SETTLER"), address("ben"))


def test_C06_a_stolen_settler_key_pays_no_provider_that_the_customer_did_not_allow(stolen: Scene) -> None:
    for proof in ([], merkle.proof(ALLOWED, ALLOWED[0]), [ALLOWED[0]], [merkle.provider_leaf(address("mallory"))]):
        own = stolen.receipt(provider="mallory")
        stolen.refuses("BadProof", "settler", "settleLease", *own, proof)
    forged = stolen.receipt(signer=receipt_key("mallory"))  # in Bob's name
    stolen.refuses("BadSignature", "settler", "settleLease", *forged, merkle.proof(ALLOWED, ALLOWED[0]))


def test_C06_a_stolen_settler_key_opens_no_hold_that_the_customer_did_not_sign(stolen: Scene) -> None:
    stolen.do("alice", "deposit", HELD)
    forged = stolen.authorize(job="other", signer="mallory")
    stolen.refuses("BadSignature", "settler", "openHold", *forged)


def test_C06_a_stolen_settler_key_takes_no_job_or_lease_id_of_another(stolen: Scene) -> None:
    stolen.open_hold("mallory", "job", hours=1)
    own = stolen.receipt(provider="mallory", customer="mallory")
    stolen.do("settler", "settleLease", *own, [])  # the same job, the same lease, of her own money
    settle_bob(stolen)
    assert stolen.view("leases", address("alice"), id32("lease"))[1] == address("bob")
    assert stolen.view("leases", address("mallory"), id32("lease"))[1] == address("mallory")


def test_C06_with_an_allowed_accomplice_it_bills_only_time_that_has_passed(stolen: Scene) -> None:
    proof = merkle.proof(ALLOWED, ALLOWED[0])
    for hours in (2, 10, 2**40):
        ahead = stolen.receipt(billable_ms=hours * HOUR_MS, cumulative_amount=1_001)
        stolen.refuses("ExceedsTime", "settler", "settleLease", *ahead, proof)
    settle_bob(stolen)
    stolen.do("alice", "challenge", id32("lease"), EVIDENCE)
    stolen.do("arbiter", "resolve", address("alice"), id32("lease"), 0, EARNED)
    assert (stolen.available("bob"), stolen.available("alice")) == (0, EARNED)


def test_C06_a_false_close_takes_no_pay_away_where_it_is_stopped(stolen: Scene) -> None:
    stolen.do("settler", "closeHold", address("alice"), id32("job"))
    stolen.refuses("TooEarly", "alice", "refundExpired", address("alice"), id32("job"))
    stolen.do("pauser", "reopenHold", address("alice"), id32("job"))
    recover(stolen)
    proof = merkle.proof(ALLOWED, ALLOWED[0])
    stolen.do("ben", "settleLease", *stolen.receipt(), proof)  # by the new settler
    stolen.chain.at(stolen.now() + stolen.terms.challenge_seconds)
    stolen.do("mallory", "finalize", address("alice"), id32("lease"))
    assert stolen.available("bob") == EARNED - EARNED * stolen.terms.fee_bps // 10_000


def test_C06_all_that_a_stolen_settler_key_gains_is_delay(stolen: Scene) -> None:
    """To do nothing is the most that it can: in the end everybody has what is theirs, and the thief nothing."""
    role = stolen.view("SETTLER")
    stolen.refuses("AccessControlUnauthorizedAccount", "settler", "proposeRole", role, address("mallory"))
    stolen.refuses("AccessControlUnauthorizedAccount", "settler", "grantRole", role, address("mallory"))
    recover(stolen)
    stolen.do("ben", "settleLease", *stolen.receipt(), merkle.proof(ALLOWED, ALLOWED[0]))
    stolen.chain.at(stolen.now() + stolen.terms.challenge_seconds)
    stolen.do("mallory", "finalize", address("alice"), id32("lease"))
    stolen.chain.at(stolen.now() + 4 * DAY + stolen.terms.grace_seconds)
    stolen.do("mallory", "refundExpired", address("alice"), id32("job"))
    for name in ("alice", "bob", "fee"):
        stolen.do(name, "withdraw", stolen.available(name))
    fee = EARNED * stolen.terms.fee_bps // 10_000
    assert stolen.balance("alice") == FUNDS - EARNED
    assert stolen.balance("bob") == FUNDS + EARNED - fee
    assert (stolen.balance("mallory"), stolen.balance("settler")) == (FUNDS, 0)
    assert stolen.view("totalLiabilities") == 0
