"""A gift is never cash, whichever way what it paid for comes back."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.charging import promotions
from billing.contesting import disputes, offences
from billing.errors import AmountInvalid
from billing.models import PromotionGrant, SettlementShare
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from tests.integration.billing.promotions.gifts import give, hold, settle
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available

pytestmark = pytest.mark.django_db


def test_a_decision_after_a_compensation_leaves_no_cash_of_a_gift(bob: UUID) -> None:
    """Half came back as a fine's compensation, the other half by the decision: all of it was a gift."""
    alice = uuid4()
    give(alice, 40 * DOLLAR)
    job_id = hold(alice, 40 * DOLLAR)
    settle(job_id, 40 * DOLLAR, bob)
    pending, balance = (
        open_account(AccountKind.PROVIDER_PENDING, bob),
        open_account(AccountKind.CUSTOMER_AVAILABLE, alice),
    )
    paid = ledger.NewTransfer(pending, balance, 20 * DOLLAR, TransferCode.COMPENSATION, job_id=job_id)
    ledger.post([paid])
    SettlementShare.objects.update(is_disputed=False)
    share = SettlementShare.objects.get()
    other = uuid4()
    give(other, 40 * DOLLAR)
    settle(hold(other, 40 * DOLLAR), 40 * DOLLAR, bob)  # so that Bob has it
    made = disputes.open_dispute(customer_id=alice, lease_id=share.lease_id, text="No.", actor="a")
    disputes.decide(made.pk, to_customer=20 * DOLLAR, to_provider=20 * DOLLAR, to_platform=0, text="Half.", actor="op")
    assert (available(alice), promotions.spendable(alice)) == (0, 40 * DOLLAR)
    assert promotions.return_refunded(job_id) == 0
    assert_ledger_is_true()


def test_a_fines_compensation_is_no_cash_of_a_gift(bob: UUID) -> None:
    """Two friends, a gift and a provoked fine would else turn credit into a refund on a card."""
    alice = uuid4()
    give(alice, 50 * DOLLAR)
    job_id = hold(alice, 50 * DOLLAR)
    settle(job_id, 50 * DOLLAR, bob)
    victim = offences.Victim(alice, job_id, SettlementShare.objects.get().lease_id)
    offence = offences.record(bob, uuid4(), "equivocation", {}, claimed=50 * DOLLAR, victim=victim)
    assert offence.compensated > 0
    assert (available(alice), promotions.spendable(alice)) == (0, offence.compensated)
    assert_ledger_is_true()


@pytest.mark.parametrize("amount", [0, -1, True, 1.5, 2**256, 2**300, "5"])
def test_what_is_no_amount_is_no_gift(amount: object) -> None:
    with pytest.raises(AmountInvalid):
        promotions.grant(uuid4(), amount, expires_at=clock.now(), reference="x", actor="x")
    assert not PromotionGrant.objects.exists()
