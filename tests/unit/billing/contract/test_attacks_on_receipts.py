"""Attacks on metering: C5, C6, C7; and on the chain below it: C18."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provider_agent.protocol.money.receipts import charge
from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import address
from tests.unit.billing.contract.scene import (
    EVIDENCE,
    HOLD_OPENED,
    HOUR_MS,
    HOURS_HELD,
    QUICK,
    UNLIMITED,
    Scene,
    Signed,
    id32,
    only,
    receipt_key,
)

# ------------------------------------------------------------------ C5


@QUICK
@given(
    amount=st.integers(1, 20_000) | st.integers(1, UNLIMITED),
    ms=st.integers(0, 40 * HOUR_MS) | st.integers(0, 2**64 - 1),
)
def test_C05_a_receipt_takes_no_more_than_rate_and_hold_allow(running: Scene, amount: int, ms: int) -> None:
    signed = running.receipt(cumulative_amount=amount, billable_ms=ms)
    if ms > running.elapsed_ms():
        running.refuses("ExceedsTime", "settler", "settleLease", *signed, [])
    elif amount > charge(1_000, ms):
        running.refuses("ExceedsRate", "settler", "settleLease", *signed, [])
    elif amount > 10_000:
        running.refuses("ExceedsHold", "settler", "settleLease", *signed, [])
    else:
        running.chain.call(running.escrow, "settler", "settleLease", *signed, [])


def test_C05_the_last_unit_and_the_last_millisecond(running: Scene) -> None:
    exact = -(-777 * HOUR_MS // 1_000)  # the first millisecond at which 777 is due
    running.refuses(
        "ExceedsRate", "settler", "settleLease", *running.receipt(cumulative_amount=777, billable_ms=exact - 1), []
    )
    running.settle(cumulative_amount=777, billable_ms=exact)
    running.refuses(
        "ExceedsHold",
        "settler",
        "settleLease",
        *running.receipt(lease="second", cumulative_amount=9_224, billable_ms=10 * HOUR_MS),
        [],
    )
    running.settle(lease="second", cumulative_amount=9_223, billable_ms=10 * HOUR_MS)
    assert running.view("totalHeld") == 0


def test_C05_a_ceiling_beyond_every_supply_overflows_nothing(scene: Scene) -> None:
    scene.open_hold(rateCeilingPerHour=UNLIMITED)
    scene.register()
    scene.settle(cumulative_amount=10_000, billable_ms=HOURS_HELD * HOUR_MS)
    assert scene.view("totalPending") == 10_000


def test_C05_no_lease_bills_more_time_than_has_passed_since_the_hold(scene: Scene) -> None:
    scene.open_hold(hours=0)
    scene.register()
    too_much = scene.receipt(cumulative_amount=1, billable_ms=scene.elapsed_ms() + 1)
    scene.refuses("ExceedsTime", "settler", "settleLease", *too_much, [])
    scene.refuses("ExceedsTime", "settler", "settleLease", *scene.receipt(billable_ms=2**64 - 1), [])
    scene.pass_hours(1)
    exact = scene.elapsed_ms()
    scene.refuses("ExceedsTime", "settler", "settleLease", *scene.receipt(billable_ms=exact + 1), [])
    scene.settle(billable_ms=exact)


def test_C05_all_leases_together_bill_as_many_at_once_as_the_customer_signed(scene: Scene) -> None:
    scene.open_hold(parallelLeases=2, hours=1)
    scene.register()
    for lease in ("first", "second"):
        scene.settle(lease=lease)
    third = scene.receipt(lease="third", cumulative_amount=100, billable_ms=HOUR_MS // 10)
    scene.refuses("ExceedsTime", "settler", "settleLease", *third, [])
    scene.pass_hours(1)
    scene.settle(lease="third", cumulative_amount=100, billable_ms=HOUR_MS // 10)
    later = scene.receipt(lease="first", seq=2, cumulative_amount=2_000, billable_ms=2 * HOUR_MS)
    scene.do("settler", "settleLease", *later, [])  # its first hour counts once
    fourth = scene.receipt(lease="fourth", cumulative_amount=1_000, billable_ms=HOUR_MS)
    scene.refuses("ExceedsTime", "settler", "settleLease", *fourth, [])


# ------------------------------------------------------------------ C6


def test_C06_the_settler_cannot_pay_itself(scene: Scene) -> None:
    leaves = [merkle.provider_leaf(address(name)) for name in ("bob", "ben")]
    scene.open_hold(providersRoot=merkle.root(leaves))
    scene.register()
    proof = merkle.proof(leaves, leaves[0])
    own = scene.receipt(provider="settler")
    scene.refuses("BadProof", "settler", "settleLease", *own, [])
    scene.refuses("BadProof", "settler", "settleLease", *own, proof)
    scene.register("settler", nonce=1)
    scene.refuses("BadProof", "settler", "settleLease", *own, proof)
    forged = scene.receipt(signer=receipt_key("settler"))  # in Bob's name, by the settler's own key
    scene.refuses("BadSignature", "settler", "settleLease", *forged, proof)
    scene.settle(*proof)
    assert scene.view("leases", address("alice"), id32("lease"))[1] == address("bob")


def test_C06_where_anybody_is_allowed_a_false_provider_is_stopped_within_the_window(scene: Scene) -> None:
    scene.open_hold()
    scene.register("settler")
    scene.settle(provider="settler")
    scene.do("alice", "challenge", id32("lease"), EVIDENCE)
    scene.do("arbiter", "resolve", address("alice"), id32("lease"), 0, 1_000)
    assert (scene.available("alice"), scene.available("settler")) == (1_000, 0)


# ------------------------------------------------------------------ C7


def test_C07_an_older_receipt_changes_nothing(running: Scene) -> None:
    older = running.receipt(seq=4, cumulative_amount=400)
    running.settle(seq=5, cumulative_amount=500, billable_ms=HOUR_MS // 2)
    for stale in (
        older,
        running.receipt(seq=5, cumulative_amount=500, billable_ms=HOUR_MS // 2),
        running.receipt(seq=5, cumulative_amount=600),
        running.receipt(seq=6, cumulative_amount=499),
        running.receipt(seq=6, cumulative_amount=501, billable_ms=HOUR_MS // 2 - 1),
    ):
        running.refuses("StaleReceipt", "settler", "settleLease", *stale, [])
    running.refuses("ZeroAmount", "settler", "settleLease", *running.receipt(seq=6, cumulative_amount=500), [])
    args = only(running.settle(seq=9, cumulative_amount=800), "LeaseSettled")
    assert (args["amount"], running.view("totalPending")) == (300, 800)


# ------------------------------------------------------------------ C18


def test_C18_a_hold_that_a_reorganisation_dropped_pays_nobody_until_opened_again(scene: Scene) -> None:
    scene.do("alice", "deposit", 10_000)
    scene.register()
    signed: Signed = scene.authorize()
    fork = scene.chain.snapshot()
    scene.do("settler", "openHold", *signed)
    scene.pass_hours(1)
    scene.settle()
    scene.chain.revert(fork)
    assert scene.view("holds", address("alice"), id32("job"))[HOLD_OPENED] == 0
    assert not scene.view("nonceUsed", address("alice"), signed.message[-1])
    scene.refuses("UnknownHold", "settler", "settleLease", *scene.receipt(), [])
    scene.do("settler", "openHold", *signed)
    scene.pass_hours(1)
    scene.settle()
    assert scene.view("totalPending") == 1_000
