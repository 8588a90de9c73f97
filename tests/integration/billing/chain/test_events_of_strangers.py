"""What strangers do in the contract is booked, whatever became of our own plans; it never floods the operators."""

from __future__ import annotations

from uuid import uuid4

from billing.chain import escrow
from billing.chain.states import EscrowHoldState
from billing.kinds import AccountKind
from billing.models import Alert, ChainEvent, EscrowHold
from marketplace.foundation.states import advance
from tests.integration.billing.chain.test_escrow import authorize
from tests.integration.billing.chain.town import TOKEN, Town


def test_a_job_id_that_a_stranger_takes_after_we_gave_up_is_booked(town: Town) -> None:
    town.deposit("Alice", 20 * TOKEN)
    job_id = uuid4()
    signed = authorize(town, job_id)
    hold = escrow.open_hold(town.asset_id, signed)
    type(hold.transaction).objects.update(state="refused")
    advance(hold, EscrowHoldState.FAILED, reason="refused")
    other = authorize(town, job_id, amount=3 * TOKEN)
    town.call("Alice", "openHold", escrow._struct(other.authorization), other.signature)
    town.follow()
    assert not ChainEvent.objects.filter(processed_at=None).exists()
    hold.refresh_from_db()
    assert (hold.state, hold.amount) == (EscrowHoldState.FAILED, 3 * TOKEN)
    assert not escrow.is_open(job_id)
    assert town.owed(AccountKind.WALLET_HELD, "Alice", job_id) == 3 * TOKEN
    town.assert_books_match()
    assert EscrowHold.objects.count() == 1


def test_dust_for_made_up_accounts_is_one_alert(town: Town) -> None:
    for _ in range(3):
        town.buy_credits("Mallory", uuid4(), 1)
    town.follow()
    alert = Alert.objects.get(kind="chain_credits")
    assert alert.noticed == 3
    town.assert_books_match()
