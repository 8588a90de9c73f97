"""A job paid straight from the customer's wallet, from the quote to the closed hold."""

from __future__ import annotations

import pytest

from billing.chain.states import EscrowHoldState
from billing.kinds import AccountKind
from billing.models import EscrowHold, EscrowLease
from jobs.models import Lease
from jobs.states import JobState
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from provider_agent.protocol import charge
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
    [lease] = scenes.start(job)
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
    town.assert_books_match()
    assert_ledger_is_true()
