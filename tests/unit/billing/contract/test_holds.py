"""A job's hold and its leases: opening, receipts, windows, disputes, the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import address, wallet
from tests.unit.billing.contract.scene import (
    DAY,
    DELEGATION_TYPES,
    EVIDENCE,
    HOLD_REMAINING,
    HOLD_TYPES,
    HOUR_MS,
    QUICK,
    ZERO,
    Scene,
    Signed,
    id32,
    only,
    receipt_key,
)


def test_a_hold_is_as_the_customer_signed_it(scene: Scene) -> None:
    signed = scene.authorize(maxAmount=4_000, rateCeilingPerHour=77, providersRoot=b"\x01" * 32)
    scene.do("alice", "deposit", 4_500)
    args = only(scene.do("settler", "openHold", *signed), "HoldOpened")
    assert args == {
        "jobId": id32("job"), "customer": address("alice"), "amount": 4_000, "rateCeilingPerHour": 77,
        "providersRoot": b"\x01" * 32, "deadline": signed.message[7],
        "parallelLeases": 4,
    }  # fmt: skip
    opened_at, deadline = scene.now() - 1, signed.message[7]
    hold = scene.view("holds", address("alice"), id32("job"))
    assert hold == (opened_at, 0, deadline, 4, False, 0, 4_000, 77, b"\x01" * 32)
    assert (scene.available("alice"), scene.view("totalHeld")) == (500, 4_000)


def test_what_an_authorization_lacks_is_named(scene: Scene) -> None:
    scene.do("alice", "deposit", 9_999)
    for error, change in (
        ("WrongAsset", {"asset": address("mallory")}),
        ("ZeroAmount", {"maxAmount": 0}),
        ("ZeroAmount", {"parallelLeases": 0}),
        ("TooLate", {"deadline": scene.now() - 1}),
        ("PeriodTooLong", {"deadline": scene.now() + 366 * DAY + 1}),
        ("PeriodTooLong", {"deadline": 2**64 - 1}),
        ("BadSignature", {"signer": "mallory"}),
        ("InsufficientAvailable", {}),
    ):
        scene.refuses(error, "settler", "openHold", *scene.authorize(**change))


@pytest.mark.parametrize("value", [1, 2**63])
@pytest.mark.parametrize("field", range(len(HOLD_TYPES["HoldAuthorization"])))
def test_no_field_can_be_changed_after_signing(scene: Scene, field: int, value: int) -> None:
    message, signature = scene.authorize()
    kinds = [each["type"] for each in HOLD_TYPES["HoldAuthorization"]]
    words = {"bytes32": value.to_bytes(32, "big"), "address": address("settler"), "uint32": value % 2**31 or 3}
    made = words.get(kinds[field], value)
    changed = (*message[:field], made, *message[field + 1 :])
    with pytest.raises(AssertionError) as unchanged:
        scene.refuses("InsufficientAvailable", "settler", "openHold", changed, signature)
    assert any(error in str(unchanged.value) for error in ("BadSignature", "WrongAsset", "TooLate", "PeriodTooLong"))


def test_a_receipt_names_the_jobs_own_parties(running: Scene) -> None:
    for error, change in (
        ("UnknownHold", {"job": "other"}),
        ("WrongAsset", {"asset": address("mallory")}),
        ("UnknownHold", {"customer": "anna"}),
        ("BadSignature", {"provider": "ben"}),
        ("BadSignature", {"signer": wallet("bob")}),
    ):
        running.refuses(error, "settler", "settleLease", *running.receipt(**change), [])


def test_a_lease_keeps_its_job_and_its_provider(running: Scene) -> None:
    running.settle()
    running.register("ben", nonce=8)
    running.refuses("WrongProvider", "settler", "settleLease", *running.receipt(provider="ben", seq=2), [])
    running.open_hold(job="second")
    running.refuses("UnknownLease", "settler", "settleLease", *running.receipt(job="second", seq=2), [])


def test_each_of_a_jobs_providers_is_paid_for_his_own_lease(scene: Scene) -> None:
    leaves = [merkle.provider_leaf(address(name)) for name in ("bob", "ben")]
    scene.open_hold(providersRoot=merkle.root(leaves))
    scene.register("bob", nonce=1)
    scene.register("ben", nonce=1)
    for name, leaf in zip(("bob", "ben"), leaves, strict=True):
        scene.settle(*merkle.proof(leaves, leaf), provider=name, lease=f"lease of {name}")
    scene.chain.at(scene.now() + scene.terms.challenge_seconds)
    for name in ("bob", "ben"):
        scene.do("mallory", "finalize", address("alice"), id32(f"lease of {name}"))
        assert scene.available(name) == 950


def test_a_later_receipt_adds_to_what_waits_and_starts_the_window_anew(running: Scene) -> None:
    first = only(running.settle(seq=1, cumulative_amount=300), "LeaseSettled")
    second = only(running.settle(seq=2, cumulative_amount=1_000), "LeaseSettled")
    assert (first["amount"], second["amount"]) == (300, 700)
    assert second["releaseAt"] == running.now() - 1 + running.terms.challenge_seconds > first["releaseAt"]
    lease = running.view("leases", address("alice"), id32("lease"))
    assert lease == (id32("job"), address("bob"), 2, False, second["releaseAt"], HOUR_MS, 1_000, 1_000)
    running.chain.at(first["releaseAt"])
    running.refuses("TooEarly", "bob", "finalize", address("alice"), id32("lease"))


def test_what_has_passed_its_window_cannot_be_challenged_again_by_a_later_receipt(running: Scene) -> None:
    running.chain.at(only(running.settle(seq=1, cumulative_amount=400), "LeaseSettled")["releaseAt"])
    paid, settled = running.settle(seq=2, cumulative_amount=1_000)
    assert (paid.name, paid.args["paid"], paid.args["fee"]) == ("LeaseFinalized", 380, 20)
    assert (settled.name, settled.args["amount"]) == ("LeaseSettled", 600)
    assert only(running.do("alice", "challenge", id32("lease"), EVIDENCE), "LeaseChallenged")["amount"] == 600
    running.do("arbiter", "resolve", address("alice"), id32("lease"), 0, 600)
    assert running.available("bob") == 380


def test_a_receipt_after_a_dispute_that_ran_out_pays_that_first(running: Scene) -> None:
    release_at = only(running.settle(seq=1, cumulative_amount=400), "LeaseSettled")["releaseAt"]
    running.do("alice", "challenge", id32("lease"), EVIDENCE)
    running.chain.at(release_at + running.terms.dispute_seconds)
    assert [event.name for event in running.settle(seq=2, cumulative_amount=500)] == ["LeaseFinalized", "LeaseSettled"]
    assert running.view("leases", address("alice"), id32("lease"))[3] is False


def test_a_challenge_stops_no_later_receipt_and_takes_it_in(running: Scene) -> None:
    running.settle(seq=1, cumulative_amount=400)
    args = only(running.do("alice", "challenge", id32("lease"), EVIDENCE), "LeaseChallenged")
    assert args == {
        "jobId": id32("job"), "leaseId": id32("lease"), "customer": address("alice"), "amount": 400,
        "evidenceHash": EVIDENCE,
    }  # fmt: skip
    running.settle(seq=2, cumulative_amount=1_000)
    running.refuses("Disputed", "alice", "challenge", id32("lease"), EVIDENCE)
    running.refuses("SumMismatch", "arbiter", "resolve", address("alice"), id32("lease"), 200, 200)
    running.do("arbiter", "resolve", address("alice"), id32("lease"), 600, 400)
    assert (running.available("bob"), running.available("alice")) == (570, 400)


def test_only_the_holds_customer_challenges_and_only_what_waits(running: Scene) -> None:
    running.refuses("UnknownLease", "alice", "challenge", id32("lease"), EVIDENCE)
    running.settle()
    for name in ("anna", "mallory", "bob", "arbiter", "settler"):
        running.refuses("UnknownLease", name, "challenge", id32("lease"), EVIDENCE)
    running.refuses("NotDisputed", "arbiter", "resolve", address("alice"), id32("lease"), 0, 1_000)
    running.refuses("UnknownLease", "arbiter", "resolve", address("alice"), id32("none"), 0, 0)
    running.refuses("UnknownLease", "bob", "finalize", address("alice"), id32("none"))
    running.do("alice", "challenge", id32("lease"), EVIDENCE)
    running.do("arbiter", "resolve", address("alice"), id32("lease"), 1_000, 0)
    running.refuses("ZeroAmount", "alice", "challenge", id32("lease"), EVIDENCE)
    running.refuses("ZeroAmount", "bob", "finalize", address("alice"), id32("lease"))
    running.refuses("NotDisputed", "arbiter", "resolve", address("alice"), id32("lease"), 0, 0)


@QUICK
@given(pending=st.integers(1, 9_000), share=st.integers(0, 9_000), off=st.integers(-3, 3))
def test_a_dispute_divides_all_of_it_once(running: Scene, pending: int, share: int, off: int) -> None:
    before = running.chain.snapshot()
    running.settle(cumulative_amount=pending, billable_ms=9 * HOUR_MS)
    running.do("alice", "challenge", id32("lease"), EVIDENCE)
    to_provider = min(share, pending)
    to_customer = pending - to_provider + off
    if off and to_customer >= 0:
        running.refuses("SumMismatch", "arbiter", "resolve", address("alice"), id32("lease"), to_provider, to_customer)
    args = only(
        running.do("arbiter", "resolve", address("alice"), id32("lease"), to_provider, pending - to_provider),
        "DisputeResolved",
    )
    assert args["fee"] == to_provider * running.terms.fee_bps // 10_000
    assert args["paid"] + args["fee"] + args["refunded"] == pending
    assert [running.available(name) for name in ("bob", "fee", "alice")] == [
        args["paid"],
        args["fee"],
        args["refunded"],
    ]
    running.refuses(
        "NotDisputed", "arbiter", "resolve", address("alice"), id32("lease"), to_provider, pending - to_provider
    )
    running.chain.revert(before)


def test_a_closed_hold_gives_the_rest_back_and_settles_nothing_more(running: Scene) -> None:
    running.settle()
    args = only(running.do("settler", "closeHold", address("alice"), id32("job")), "HoldClosed")
    assert args == {"jobId": id32("job"), "customer": address("alice"), "refunded": 9_000, "expired": False}
    running.refuses("HoldIsClosed", "settler", "closeHold", address("alice"), id32("job"))
    running.refuses("HoldIsClosed", "mallory", "refundExpired", address("alice"), id32("job"))
    running.refuses("HoldIsClosed", "settler", "settleLease", *running.receipt(seq=2, cumulative_amount=1_001), [])
    running.refuses("UnknownHold", "settler", "closeHold", address("alice"), id32("none"))
    running.refuses("UnknownHold", "mallory", "refundExpired", address("alice"), id32("none"))
    running.do("alice", "challenge", id32("lease"), EVIDENCE)  # what waits can still be disputed
    running.do("arbiter", "resolve", address("alice"), id32("lease"), 0, 1_000)
    assert running.available("alice") == 10_000


def test_a_receipt_key_signs_until_it_is_revoked_or_ends(running: Scene) -> None:
    key = receipt_key("bob").address
    assert running.view("receiptKeys", address("bob"), key) > running.now()
    args = only(running.do("bob", "revokeReceiptKey", key), "ReceiptKeyRevoked")
    assert args == {"provider": address("bob"), "receiptKey": key}
    running.refuses("NotAllowed", "bob", "revokeReceiptKey", key)
    running.refuses("BadSignature", "settler", "settleLease", *running.receipt(), [])
    until = running.now() + 100
    args = only(
        running.do("mallory", "registerReceiptKey", *running.delegate(notAfter=until, nonce=2)), "ReceiptKeyRegistered"
    )
    assert args == {"provider": address("bob"), "receiptKey": key, "notAfter": until}
    running.chain.at(until + 1)
    running.refuses("TooLate", "settler", "settleLease", *running.receipt(), [])


def test_a_delegation_counts_once_and_only_by_the_wallet(scene: Scene) -> None:
    scene.register()
    scene.refuses("NonceUsed", "bob", "registerReceiptKey", *scene.delegate())
    scene.refuses("BadSignature", "bob", "registerReceiptKey", *scene.delegate(nonce=2, signer="mallory"))
    scene.refuses("TooLate", "bob", "registerReceiptKey", *scene.delegate(nonce=2, notAfter=scene.now() - 1))
    scene.refuses("NotAllowed", "bob", "registerReceiptKey", *scene.delegate(nonce=2, receiptKey=ZERO))


def test_nobody_takes_a_receipt_key_by_registering_it_first(scene: Scene) -> None:
    scene.open_hold()
    key = receipt_key("bob").address
    scene.register("mallory", receiptKey=key)
    scene.register("bob")
    scene.do("mallory", "revokeReceiptKey", key)
    scene.settle()
    assert scene.view("leases", address("alice"), id32("lease"))[1] == address("bob")


def test_wallets_with_code_sign_by_themselves(scene: Scene) -> None:
    """ERC-1271: a customer's and a provider's wallet may be contracts."""
    customer = scene.chain.deploy("ContractWallet", address("alice"))
    provider = scene.chain.deploy("ContractWallet", address("bob"))
    scene.do("alice", "depositFor", customer.address, 10_000)
    fields = [each["name"] for each in HOLD_TYPES["HoldAuthorization"]]
    authorization = dict(zip(fields, scene.authorize().message, strict=True)) | {"customer": customer.address}
    scene.do("settler", "openHold", *scene.sign(wallet("alice"), HOLD_TYPES, authorization))
    message = {"provider": provider.address, "receiptKey": receipt_key("bob").address, "notAfter": 2**40, "nonce": 1}
    signed: Signed = scene.sign(wallet("bob"), DELEGATION_TYPES, message)
    scene.refuses(
        "BadSignature", "bob", "registerReceiptKey", signed.message, scene.delegate(signer="mallory").signature
    )
    scene.do("mallory", "registerReceiptKey", *signed)
    revoke = scene.escrow.encode_abi("revokeReceiptKey", [receipt_key("bob").address])
    scene.chain.do(provider, "bob", "act", scene.escrow.address, bytes.fromhex(revoke[2:]))
    assert scene.view("receiptKeys", provider.address, receipt_key("bob").address) == 0
    assert scene.view("holds", customer.address, id32("job"))[HOLD_REMAINING] == 10_000
