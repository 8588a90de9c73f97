"""Stripe's answers as we read them: what may be missing is empty, and what no name is is refused."""

from __future__ import annotations

from typing import Any

import pytest

from billing.rails.stripe.records import (
    BankPayout,
    Connected,
    Dispute,
    EventRecord,
    Intent,
    Refund,
    Session,
    id_of,
)

BOOKING = {
    "id": "txn_1",
    "type": "charge",
    "source": {"id": "ch_1"},
    "amount": 100,
    "fee": 3,
    "currency": "usd",
    "created": 1_790_000_000,
}


def test_a_payment_without_a_charge_has_no_booking() -> None:
    bare = Intent.read({"id": "pi_1", "status": "processing", "amount": 100, "currency": "usd"})
    assert (bare.charge_id, bare.booking, bare.error_code, bare.metadata) == ("", None, "", {})


@pytest.mark.parametrize(
    ("charge", "is_booked"),
    [
        ("ch_1", False),
        ({"id": "ch_1"}, False),
        ({"id": "ch_1", "balance_transaction": "txn_1"}, False),
        ({"id": "ch_1", "balance_transaction": BOOKING}, True),
    ],
)
def test_a_charge_is_booked_only_where_stripe_shows_its_booking(charge: Any, is_booked: bool) -> None:
    intent = Intent.read(
        {"id": "pi_1", "status": "succeeded", "amount": 100, "currency": "usd", "latest_charge": charge}
    )
    assert intent.charge_id == "ch_1"
    assert (intent.booking is not None) is is_booked
    if intent.booking is not None:
        assert (intent.booking.source, intent.booking.fee_cents) == ("ch_1", 3)


@pytest.mark.parametrize(
    ("error", "code"),
    [({"decline_code": "lost_card", "code": "card_declined"}, "lost_card"), ({"code": "expired"}, "expired"), ({}, "")],
)
def test_the_banks_own_reason_comes_before_stripes(error: dict[str, str], code: str) -> None:
    json = {"id": "pi_1", "status": "canceled", "amount": 1, "currency": "usd", "last_payment_error": error}
    assert Intent.read(json).error_code == code


def test_a_refund_shows_the_booking_of_its_failure_beside_its_own() -> None:
    json = {"id": "re_1", "amount": 100, "charge": "ch_1"}
    assert (Refund.read(json).booking, Refund.read(json).failure_booking) == (None, None)
    failed = Refund.read(json | {"balance_transaction": BOOKING, "failure_balance_transaction": BOOKING})
    assert failed.booking == failed.failure_booking is not None


def test_a_dispute_without_a_deadline_or_bookings_is_read() -> None:
    json: dict[str, Any] = {"id": "dp_1", "status": "needs_response", "amount": 100}
    assert (Dispute.read(json).due_at, Dispute.read(json).bookings) == (None, ())
    due = Dispute.read(json | {"evidence_details": {"due_by": 1_790_000_000}, "balance_transactions": [BOOKING]})
    assert due.due_at is not None
    assert due.due_at.timestamp() == 1_790_000_000
    assert [booking.id for booking in due.bookings] == ["txn_1"]


def test_an_account_is_payable_only_with_transfers_and_a_bank() -> None:
    active = {"capabilities": {"transfers": "active"}}
    assert Connected.read({"id": "acct_1", **active, "payouts_enabled": True}).is_payable
    assert not Connected.read({"id": "acct_1", **active}).is_payable
    assert not Connected.read({"id": "acct_1", "payouts_enabled": True}).is_payable


def test_a_page_of_stripe_without_a_payment_is_read() -> None:
    page = Session.read({"id": "cs_1", "mode": "setup", "customer": {"id": "cus_1"}})
    assert (page.customer_id, page.intent_id, page.tax_cents, page.status) == ("cus_1", "", 0, "")


@pytest.mark.parametrize(
    ("fields", "failure"),
    [({"failure_message": "closed", "failure_code": "x"}, "closed"), ({"failure_code": "x"}, "x"), ({}, "")],
)
def test_why_a_bank_refused_is_in_words_where_there_are_any(fields: dict[str, str], failure: str) -> None:
    assert BankPayout.read({"id": "po_1", "status": "failed", **fields}).failure == failure


def event(**named: Any) -> dict[str, Any]:
    return {"id": "evt_1", "type": "charge.succeeded", "created": 1_790_000_000, "data": {"object": named}}


def test_an_event_keeps_names_and_nothing_of_its_payer() -> None:
    found = EventRecord.read(event(id="ch_1", customer={"id": "cus_1"}, billing_details={"name": "Alice"}, charge=None))
    assert found.payload == {"data": {"object": {"id": "ch_1", "customer": "cus_1"}}}
    assert found.account == ""


@pytest.mark.parametrize("name", ["x" * 121, "a\nb", "\0"])
def test_an_event_whose_name_no_column_takes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a name at Stripe"):
        EventRecord.read(event(id=name))
    with pytest.raises(ValueError, match="is not a name at Stripe"):
        EventRecord.read(event(id="ch_1") | {"type": 7})


def test_an_id_is_the_same_expanded_or_not() -> None:
    assert [id_of(value) for value in ("ch_1", {"id": "ch_1"}, {}, None)] == ["ch_1", "ch_1", "", ""]
