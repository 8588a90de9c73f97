"""Connected accounts, transfers, reversals, payouts and disputes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import stripe

from billing.rails.stripe.providers import CONTROLLER
from tests.contracts.stripe.conftest import World


def fund(world: World, cents: int = 20_000) -> Any:
    """A charge whose money is available at once."""
    return world.paid(cents, "pm_card_bypassPending").latest_charge


def balance_of(world: World, account: str) -> int:
    found = world.v1.balance.retrieve(None, {"stripe_account": account})
    return sum(one.amount for one in found.available if one.currency == "usd")


def send(world: World, account: str, cents: int, **more: Any) -> Any:
    return world.v1.transfers.create({"amount": cents, "currency": "usd", "destination": account, **more})


def test_a_new_account_may_not_be_paid_yet(world: World) -> None:
    made = world.v1.accounts.create(
        {"controller": CONTROLLER, "country": "US", "capabilities": {"transfers": {"requested": True}}}
    )
    assert (made.payouts_enabled, made.details_submitted) == (False, False)
    assert made.requirements.currently_due
    fund(world)
    with pytest.raises(stripe.InvalidRequestError) as refusal:
        send(world, made.id, 100)
    assert refusal.value.code == "insufficient_capabilities_for_transfer"


def test_a_link_for_onboarding_ends_soon(world: World) -> None:
    account = world.v1.accounts.create({"controller": CONTROLLER})
    link = world.v1.account_links.create(
        {
            "account": account.id,
            "type": "account_onboarding",
            "refresh_url": "https://example.com/again",
            "return_url": "https://example.com/back",
        }
    )
    assert link.url.startswith("https://")
    assert link.expires_at > link.created


def test_a_transfer_moves_money_and_is_found_by_its_group(world: World) -> None:
    account, group = world.connected(), str(uuid4())
    fund(world)
    before = balance_of(world, account)
    made = send(world, account, 5_000, transfer_group=group, metadata={"outbox_id": group})
    assert balance_of(world, account) == before + 5_000
    found = world.v1.transfers.list({"transfer_group": group}).data
    assert [(one.id, one.metadata["outbox_id"]) for one in found] == [(made.id, group)]


def test_a_transfer_beyond_the_balance_is_refused(world: World) -> None:
    account = world.connected()
    with pytest.raises(stripe.InvalidRequestError) as refusal:
        send(world, account, 99_999_999)
    assert refusal.value.code == "balance_insufficient"


def test_a_transfer_bound_to_a_charge_need_not_wait_and_cannot_exceed_it(world: World) -> None:
    account = world.connected()
    charge = world.paid(3_000).latest_charge
    made = send(world, account, 2_000, source_transaction=charge.id)
    assert made.source_transaction == charge.id
    with pytest.raises(stripe.InvalidRequestError):
        send(world, account, 1_001, source_transaction=charge.id)


def test_a_transfer_is_reversed_in_parts_and_never_beyond(world: World) -> None:
    account = world.connected()
    fund(world)
    made = send(world, account, 4_000)
    before = balance_of(world, account)
    world.v1.transfers.reversals.create(made.id, {"amount": 1_000, "metadata": {"outbox_id": "1"}})
    assert balance_of(world, account) == before - 1_000
    with pytest.raises(stripe.InvalidRequestError):
        world.v1.transfers.reversals.create(made.id, {"amount": 3_001})
    world.v1.transfers.reversals.create(made.id)
    found = world.v1.transfers.retrieve(made.id)
    assert (found.amount_reversed, found.reversed) == (4_000, True)


def test_a_payout_takes_from_the_accounts_own_balance(world: World) -> None:
    account = world.connected()
    options: Any = {"stripe_account": account}
    fund(world)
    send(world, account, 3_000)
    before = balance_of(world, account)
    made = world.v1.payouts.create({"amount": 1_200, "currency": "usd", "metadata": {"outbox_id": "1"}}, options)
    assert (made.status in {"pending", "in_transit"}, made.automatic) == (True, False)
    assert balance_of(world, account) == before - 1_200
    with pytest.raises(stripe.InvalidRequestError) as refusal:
        world.v1.payouts.create({"amount": 99_999_999, "currency": "usd"}, options)
    assert refusal.value.code == "balance_insufficient"


def test_a_dispute_takes_the_payment_and_a_fee(world: World) -> None:
    charge = world.paid(5_000, "pm_card_createDispute").latest_charge
    found = world.v1.disputes.list({"charge": charge.id}).data[0]
    assert (found.status, found.amount, found.reason) == ("needs_response", 5_000, "fraudulent")
    booked = found.balance_transactions[0]
    assert (booked.amount, booked.net, booked.reporting_category) == (-5_000, -5_000 - booked.fee, "dispute")
    assert world.v1.charges.retrieve(charge.id).disputed


def test_evidence_is_sent_once(world: World) -> None:
    charge = world.paid(5_000, "pm_card_createDispute").latest_charge
    dispute = world.v1.disputes.list({"charge": charge.id}).data[0]
    draft = world.v1.disputes.update(dispute.id, {"evidence": {"customer_name": "Alice"}, "submit": False})
    assert (draft.status, draft.evidence_details.submission_count) == ("needs_response", 0)
    sent = world.v1.disputes.update(dispute.id, {"evidence": {"uncategorized_text": "jobs and receipts"}})
    assert (sent.evidence_details.has_evidence, sent.evidence_details.submission_count) == (True, 1)
    assert (sent.evidence.customer_name, sent.evidence.uncategorized_text) == ("Alice", "jobs and receipts")


@pytest.mark.parametrize(("text", "status"), [("winning_evidence", "won"), ("losing_evidence", "lost")])
def test_stripes_own_test_words_decide_a_dispute(faked: World, text: str, status: str) -> None:
    charge = faked.paid(5_000, "pm_card_createDispute").latest_charge
    dispute = faked.v1.disputes.list({"charge": charge.id}).data[0]
    assert faked.v1.disputes.update(dispute.id, {"evidence": {"uncategorized_text": text}}).status == "under_review"
    faked.fake.clock.advance(1)
    assert faked.v1.disputes.retrieve(dispute.id).status == status


def test_a_failed_payout_gives_the_money_back(faked: World) -> None:
    account = faked.connected()
    fund(faked)
    send(faked, account, 3_000)
    options: Any = {"stripe_account": account}
    made = faked.v1.payouts.create({"amount": 3_000, "currency": "usd"}, options)
    faked.fake.pay_payout(made.id)
    faked.fake.fail_payout(made.id, "account_closed")  # banks do that, days later
    found = faked.v1.payouts.retrieve(made.id, None, options)
    assert (found.status, found.failure_code) == ("failed", "account_closed")
    assert found.failure_balance_transaction
    assert balance_of(faked, account) == 3_000
    assert [one.type for one in faked.v1.events.list({"type": "payout.*"}, options).data] == [
        "payout.failed",
        "payout.paid",
        "payout.created",
    ]
    assert all(one["type"] != "payout.failed" for one in faked.v1.events.list({"limit": 100}).data)


def test_a_canceled_payout_gives_the_money_back(faked: World) -> None:
    account = faked.connected()
    fund(faked)
    send(faked, account, 3_000)
    options: Any = {"stripe_account": account}
    made = faked.v1.payouts.create({"amount": 1_000, "currency": "usd"}, options)
    assert faked.v1.payouts.cancel(made.id, None, options).status == "canceled"
    assert balance_of(faked, account) == 3_000
    with pytest.raises(stripe.InvalidRequestError):
        faked.v1.payouts.cancel(made.id, None, options)


def test_a_payout_arrives_by_the_clock(faked: World) -> None:
    account = faked.connected()
    fund(faked)
    send(faked, account, 3_000)
    made = faked.v1.payouts.create({"amount": 1_000, "currency": "usd"}, {"stripe_account": account})
    faked.fake.clock.advance(24 * 3600)
    assert faked.fake.get(made.id)["status"] == "in_transit"
    faked.fake.clock.advance(24 * 3600)
    assert faked.fake.get(made.id)["status"] == "paid"


def test_a_restricted_account_gets_nothing(faked: World) -> None:
    account = faked.connected()
    fund(faked)
    faked.fake.restrict(account)
    with pytest.raises(stripe.InvalidRequestError):
        send(faked, account, 100)
    with pytest.raises(stripe.InvalidRequestError):
        faked.v1.payouts.create({"amount": 100, "currency": "usd"}, {"stripe_account": account})


def test_a_reversal_cannot_take_what_was_paid_out(faked: World) -> None:
    account = faked.connected()
    fund(faked)
    made = send(faked, account, 3_000)
    faked.v1.payouts.create({"amount": 2_500, "currency": "usd"}, {"stripe_account": account})
    with pytest.raises(stripe.InvalidRequestError) as refusal:
        faked.v1.transfers.reversals.create(made.id, {"amount": 501})
    assert refusal.value.code == "balance_insufficient"


def test_an_account_of_somebody_else_is_out_of_reach(faked: World) -> None:
    with pytest.raises(stripe.PermissionError):
        faked.v1.balance.retrieve(None, {"stripe_account": "acct_mallory"})


@pytest.mark.parametrize("won", [True, False])
def test_a_dispute_is_decided_once(faked: World, won: bool) -> None:
    charge = fund(faked, 5_000)
    before = faked.fake.balance["usd"][0]
    dispute = faked.fake.open_dispute(charge.id)
    assert faked.fake.balance["usd"][0] == before - 5_000 - 1_500
    faked.fake.close_dispute(dispute["id"], won=won)
    assert faked.fake.balance["usd"][0] == before - 1_500 - (0 if won else 5_000)
    with pytest.raises(ValueError, match=r"is won|is lost"):
        faked.fake.close_dispute(dispute["id"], won=True)
    types = [one["type"] for one in faked.fake.events if one["type"].startswith("charge.dispute")]
    opened = ["charge.dispute.created", "charge.dispute.funds_withdrawn"]
    assert types == opened + ["charge.dispute.funds_reinstated"] * won + ["charge.dispute.closed"]


def test_a_dispute_that_nobody_answers_is_lost(faked: World) -> None:
    dispute = faked.fake.open_dispute(fund(faked).id)
    faked.fake.clock.advance(9 * 24 * 3600)
    found = faked.v1.disputes.retrieve(dispute["id"])
    assert (found.status, found.evidence_details.past_due) == ("lost", True)
    with pytest.raises(stripe.InvalidRequestError):
        faked.v1.disputes.update(dispute["id"], {"evidence": {"uncategorized_text": "late"}})


def test_an_inquiry_takes_nothing(faked: World) -> None:
    charge = fund(faked, 5_000)
    before = faked.fake.balance
    dispute = faked.fake.open_dispute(charge.id, is_inquiry=True)
    assert (dispute["status"], faked.fake.balance) == ("warning_needs_response", before)
