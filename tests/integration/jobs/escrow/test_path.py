"""A job paid straight from the customer's wallet, from the quote to the closed hold."""

from __future__ import annotations

import pytest

from billing.account_kinds import AccountKind
from billing.contesting import disputes
from billing.errors import NothingToDispute
from billing.models import Commitment, EscrowClaim, EscrowHold, EscrowLease
from billing.states.chain import EscrowHoldState
from jobs import lifecycle
from jobs.api.job_views import show_job
from jobs.bills import earnings
from jobs.bills.bill import make_bill
from jobs.client.verify.bill import verify_bill, verify_earnings
from jobs.errors import HoldCannotGrow, JobNotPaused
from jobs.models import Lease
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import Reason, charge
from tests import stage
from tests.integration.billing.chain.town import Town
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_is_signed_held_placed_run_settled_and_closed(town: Town, alice: Organisation, bob: Node) -> None:
    job = scenes.submit(town, alice)
    assert stage.place(job) == []  # its hold is not final
    town.follow(2)
    town.pass_seconds(scenes.SECONDS_HELD)
    [lease] = scenes.start(job)
    assert lease.payment_terms is not None
    parties = lease.payment_terms.parties
    assert (parties.customer, parties.provider) == (town.key("Alice").address, town.key("Bob").address)
    scenes.use(lease, seconds=1800, ms=1_700_000)
    stage.finish(lease)
    job.refresh_from_db()
    assert job.state == JobState.COMPLETED
    scenes.pass_time(town)
    due = charge(2 * DOLLAR, 1_700_000)
    lease = Lease.objects.get(pk=lease.pk)
    assert int(lease.charge_units or 0) == due
    hold = EscrowHold.objects.get(pk=job.pk)
    assert (hold.state, int(hold.settled)) == (EscrowHoldState.CLOSED, due)
    settled = EscrowLease.objects.get(pk=lease.pk)
    fee = due // 10
    assert (int(settled.paid), int(settled.fee), int(settled.pending)) == (due - fee, fee, 0)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == due - fee
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR - due
    scenes.assert_nothing_here(alice)
    scenes.assert_split(job)
    town.assert_books_match()
    assert_ledger_is_true()
    view = show_job(job)
    assert view.payment_mode == "escrow" and view.escrow is not None and view.escrow.transaction_hash.startswith("0x")
    bill = make_bill(job)
    assert (bill.is_final, bill.total_units, bill.released_units) == (True, due, 2 * DOLLAR - due)
    assert verify_bill(bill).problem is None
    earned = earnings.list_earnings(bob.provider.organisation_id, since=None, until=clock.now())
    assert earned.paid_units == {"TUSD": due - fee}
    assert verify_earnings(earned).problem is None
    assert Commitment.objects.get(job_id=job.pk).charged == due
    with pytest.raises(NothingToDispute, match="souk escrow challenge"):
        disputes.open_dispute(customer_id=alice.id, lease_id=lease.pk, text="It never ran at all.", actor="alice")
    with pytest.raises(HoldCannotGrow, match="Launch the job file again"):
        lifecycle.resubmit(job.pk, actor="alice")


def test_a_provider_at_fault_gets_nothing_and_the_next_one_its_whole_receipt(
    town: Town, alice: Organisation, bob: Node
) -> None:
    """The first attempt breaks before a checkpoint, the second up to one: only whole receipts are paid."""
    carol = scenes.node("carols-node", price_usd_micros=2 * DOLLAR)
    scenes.delegate(town, carol, wallet="Carol")
    town.follow(2)
    job, [first] = scenes.running(town, alice, budget={"max_total": "4.00"})
    assert first.node_id == bob.pk
    scenes.use(first, seconds=900, ms=800_000)
    stage.finish(first, Reason.DEVICE_FAILED)
    [second] = scenes.start(job)
    assert second.node_id == carol.pk
    scenes.use(second, seconds=600, ms=500_000)
    stage.bill(second, ms=590_000)
    stage.checkpoint(job, second, step=50, ms=560_000)
    lifecycle.cancel(job.pk, actor="operator", reason=Reason.CANCELLED_BY_OPERATOR)
    stage.finish(second, Reason.CANCELLED_BY_OPERATOR)
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED
    scenes.pass_time(town)
    assert not EscrowClaim.objects.filter(lease_id=first.pk).exists()
    settled = EscrowLease.objects.get()
    due = charge(4 * DOLLAR, 500_000)
    assert (settled.pk, int(settled.paid) + int(settled.fee)) == (second.pk, due)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Bob") == 0
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR - due
    bill = make_bill(job)
    assert [line.charge_units for line in bill.lines] == [0, due]
    assert "number 1 with 500.0 s; the 90.0 s after it" in bill.lines[1].explanation
    assert bill.is_final and verify_bill(bill).problem is None
    scenes.assert_nothing_here(alice)
    scenes.assert_split(job)
    town.assert_books_match()


def test_a_gang_is_settled_lease_by_lease_and_a_spent_hold_ends_the_job(town: Town, alice: Organisation) -> None:
    owner = stage.organisation("gang")
    nodes = [scenes.node(name, fabric="rack", provider=owner) for name in ("left", "right")]
    for node in nodes:
        scenes.delegate(town, node)
    town.follow(2)
    job, leases = scenes.running(town, alice, resources={"gpus": 2, "nodes": 2, "kind": "any"})
    assert len(leases) == 2
    for lease in leases:
        scenes.use(lease, seconds=1800, ms=1_790_000)
    for lease in leases:
        stage.finish(lease, Reason.BUDGET_EXHAUSTED)
    job.refresh_from_db()
    assert (job.state, job.reason) == (JobState.FAILED, "budget_exhausted")  # not paused: a hold cannot grow
    with pytest.raises(JobNotPaused, match="Only a paused"):
        lifecycle.resume(job.pk, cap_usd_micros=9 * DOLLAR, actor="alice")
    scenes.pass_time(town)
    assert EscrowLease.objects.count() == 2
    total = 2 * charge(2 * DOLLAR, 1_790_000)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 10 * DOLLAR - total
    scenes.assert_split(job)
    town.assert_books_match()
