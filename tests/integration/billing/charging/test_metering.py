"""A receipt is believed as far as it is signed, chained, priced right and observed, and no further."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from eth_account import Account as EthereumAccount
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.charging import metering
from billing.errors import (
    Equivocation,
    ReceiptAboveCap,
    ReceiptAboveObserved,
    ReceiptAmountWrong,
    ReceiptChainBroken,
    ReceiptForeign,
    ReceiptGap,
    ReceiptNotMonotone,
    ReceiptRefused,
    ReceiptSignatureInvalid,
)
from billing.models import ReceiptEvidence, UsageReceipt
from provider_agent.protocol import (
    ReceiptDomain,
    SignedReceipt,
    charge,
    receipt_digest,
    recover_receipt_signer,
    sign_receipt,
)
from tests.integration.billing.scenes import Meter

pytestmark = pytest.mark.django_db


@pytest.fixture
def meter() -> Meter:
    """One receipt of 1,000 ms is accepted; the server has observed a minute."""
    meter = Meter()
    assert accept(meter, meter.read(1000)) == 1
    return meter


def accept(meter: Meter, *receipts: SignedReceipt, observed_ms: int = 60_000) -> int:
    return metering.accept_receipts(meter.terms, receipts, observed_ms=observed_ms)


def test_receipts_are_kept_with_all_that_verifies_them_again(meter: Meter) -> None:
    assert accept(meter, meter.read(2000), meter.read(3000)) == 3
    newest = metering.newest(meter.lease_id)
    assert newest is not None
    assert (newest.seq, newest.billable_ms, newest.cumulative_amount) == (3, 3000, 3000)
    rows = list(UsageReceipt.objects.of_lease(meter.lease_id))
    assert [row.as_signed() for row in rows] == meter.made
    assert {recover_receipt_signer(row.as_signed()) for row in rows} == {meter.terms.receipt_address}
    assert [row.prev_digest for row in rows[1:]] == [row.digest for row in rows[:-1]]


def test_a_lease_without_receipts_has_no_newest() -> None:
    assert metering.newest(uuid4()) is None
    assert accept(Meter()) == 0


def test_a_repeat_changes_nothing(meter: Meter) -> None:
    accept(meter, meter.read(2000))
    assert accept(meter, *meter.made) == 2
    assert accept(meter, meter.made[0]) == 2
    assert UsageReceipt.objects.of_lease(meter.lease_id).count() == 2


Forge = Callable[[Meter], SignedReceipt]
LIES: dict[str, tuple[Forge, type[ReceiptRefused]]] = {
    "another job": (lambda meter: meter.sign(2000, job_id=uuid4()), ReceiptForeign),
    "another lease": (lambda meter: meter.sign(2000, lease_id=uuid4()), ReceiptForeign),
    "another provider": (lambda meter: meter.sign(2000, provider="0x" + "1" * 40), ReceiptForeign),
    "another customer": (lambda meter: meter.sign(2000, customer="0x" + "1" * 40), ReceiptForeign),
    "another asset": (lambda meter: meter.sign(2000, asset="0x" + "1" * 40), ReceiptForeign),
    "Mallory's key": (
        lambda meter: meter.sign(2000, key="0x" + EthereumAccount.create().key.hex()),
        ReceiptSignatureInvalid,
    ),
    "another chain": (
        lambda meter: sign_receipt(meter.key, meter.sign(2000).receipt, ReceiptDomain(chain_id=1)),
        ReceiptSignatureInvalid,
    ),
    "another contract": (
        lambda meter: sign_receipt(
            meter.key, meter.sign(2000).receipt, ReceiptDomain(verifying_contract="0x" + "1" * 40)
        ),
        ReceiptSignatureInvalid,
    ),
    "no signature at all": (
        lambda meter: SignedReceipt(receipt=meter.sign(2000).receipt, signature="0x" + "0" * 130),
        ReceiptSignatureInvalid,
    ),
    "a signature of something else": (
        lambda meter: SignedReceipt(receipt=meter.sign(2001).receipt, signature=meter.sign(2000).signature),
        ReceiptSignatureInvalid,
    ),
    "a gap": (lambda meter: meter.sign(2000, seq=3), ReceiptGap),
    "a broken chain": (lambda meter: meter.sign(2000, prev_digest="0x" + "0" * 63 + "1"), ReceiptChainBroken),
    "a chain broken upwards": (lambda meter: meter.sign(2000, prev_digest="0x" + "f" * 64), ReceiptChainBroken),
    "time that runs back": (lambda meter: meter.sign(999), ReceiptNotMonotone),
    "a micro-dollar too much": (lambda meter: meter.sign(2000, cumulative_amount=2001), ReceiptAmountWrong),
    "a micro-dollar too little": (lambda meter: meter.sign(2000, cumulative_amount=1999), ReceiptAmountWrong),
    "more than was observed": (lambda meter: meter.sign(65_001), ReceiptAboveObserved),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_by_its_name_and_not_stored(meter: Meter, lie: str) -> None:
    forge, error = LIES[lie]
    with pytest.raises(ReceiptRefused) as refused:
        accept(meter, forge(meter))
    assert type(refused.value) is error
    assert (refused.value.status, refused.value.details["seq"]) == (409, 1)
    assert UsageReceipt.objects.of_lease(meter.lease_id).count() == 1
    assert accept(meter, meter.read(2000)) == 2  # and the truth still is accepted


def test_one_heartbeat_more_than_observed_is_believed(meter: Meter) -> None:
    assert accept(meter, meter.read(65_000)) == 2  # an agent that has a lease sends one every five seconds


def test_no_lease_bills_more_than_its_cap() -> None:
    meter = Meter(cap=5000)
    assert accept(meter, meter.read(5000)) == 1
    with pytest.raises(ReceiptAboveCap):
        accept(meter, meter.sign(5001))


def test_the_good_receipts_before_a_bad_one_are_kept(meter: Meter) -> None:
    good = [meter.read(2000), meter.read(3000)]
    with pytest.raises(ReceiptGap) as refused:
        accept(meter, *good, meter.sign(4000, seq=9), meter.sign(4000))
    assert refused.value.seq == refused.value.details["seq"] == 3
    assert refused.value.details["expected_seq"] == 4
    newest = metering.newest(meter.lease_id)
    assert newest is not None and newest.seq == 3


def test_two_receipts_with_one_sequence_are_kept_as_evidence(meter: Meter) -> None:
    meter.read(2000)
    accept(meter, meter.made[1])
    other = sign_receipt(meter.key, meter.made[1].receipt.model_copy(update={"billable_ms": 3000}))
    for _ in range(2):  # reported twice, it is one piece of evidence
        with pytest.raises(Equivocation):
            accept(meter, other)
    [evidence] = ReceiptEvidence.objects.filter(lease_id=meter.lease_id)
    assert evidence.other_digest == receipt_digest(other.receipt) != evidence.accepted_digest
    # What was kept proves the lie to anybody who has nothing else.
    for kept in (evidence.accepted, evidence.other):
        assert recover_receipt_signer(SignedReceipt.model_validate(kept)) == evidence.signer
    newest = metering.newest(meter.lease_id)
    assert newest is not None and newest.billable_ms == 2000


def test_endless_contradictions_of_one_lease_are_kept_twenty_times(meter: Meter) -> None:
    for billable_ms in range(1001, 1023):
        with pytest.raises(Equivocation):
            accept(meter, meter.sign(billable_ms, seq=1))
    assert ReceiptEvidence.objects.filter(lease_id=meter.lease_id).count() == 20


def test_a_contradiction_within_one_append_is_found_too(meter: Meter) -> None:
    with pytest.raises(Equivocation):
        accept(meter, meter.read(2000), meter.sign(3000, seq=2))
    assert ReceiptEvidence.objects.get(lease_id=meter.lease_id).seq == 2


def test_nobody_else_can_make_evidence_against_a_lease(meter: Meter) -> None:
    with pytest.raises(ReceiptSignatureInvalid):
        accept(meter, meter.sign(9000, seq=1, key="0x" + EthereumAccount.create().key.hex()))
    assert not ReceiptEvidence.objects.exists()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rate=st.integers(min_value=0, max_value=10**9))
def test_no_order_or_repetition_of_appends_changes_what_is_billed(db: None, data: st.DataObject, rate: int) -> None:
    meter = Meter(rate=rate, cap=10**18)
    for ms in sorted(data.draw(st.lists(st.integers(min_value=0, max_value=10**7), min_size=1, max_size=6))):
        meter.read(ms)
    sent = data.draw(st.lists(st.sampled_from(meter.made), max_size=12))
    seen = 0
    for signed in [*sent, *meter.made]:  # whatever was lost or shuffled, at the end the agent sends all that it has
        try:
            seq = accept(meter, signed, observed_ms=10**7)
        except ReceiptGap as gap:
            seq = gap.seq
        assert seq >= seen
        seen = seq
    rows = list(UsageReceipt.objects.of_lease(meter.lease_id))
    assert [row.as_signed() for row in rows] == meter.made
    assert rows[-1].cumulative_amount == charge(rate, meter.made[-1].receipt.billable_ms)
    assert [row.cumulative_amount for row in rows] == sorted(row.cumulative_amount for row in rows)
