"""A proven breach costs a provider what the table says, once, and never more than is there (P25)."""

from __future__ import annotations

from datetime import timedelta
from threading import Event
from time import sleep
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.charging import releasing, settlement
from billing.contesting import disputes, offences
from billing.contesting.offences import Victim
from billing.contesting.penalties import PENALTIES
from billing.errors import OffenceUnknown
from billing.models import Account, Alert, EndRecord, Offence, ReceiptEvidence
from billing.transfer_codes import TransferCode
from marketplace.foundation import clock
from provider_agent.protocol import REASONS, Fault, Reason
from tests.integration.billing.disputes.scenes import CHARGED, FEE, PAID, earned, end, has, pending, settle
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund, race

pytestmark = pytest.mark.django_db
STAKE, RESERVE = AccountKind.PROVIDER_STAKE, AccountKind.PROVIDER_RESERVE
LATER = timedelta(days=40)


def give(owner, kind, amount):
    """Collateral from outside."""
    cash = open_account(AccountKind.OPERATOR_CASH)
    ledger.post([ledger.NewTransfer(cash, open_account(kind, owner), amount, TransferCode.STAKE)])


def fine(bob, share, offence_id=None, *, claimed=CHARGED, reason="equivocation"):
    victim = Victim(share.settlement.owner_id, share.settlement.job_id, share.lease_id)
    return offences.record(bob, offence_id or uuid4(), reason, {"digest": "0x1"}, claimed=claimed, victim=victim)


@pytest.fixture
def share(alice, bob):
    return settle(alice, bob)


def test_a_fine_takes_pending_pay_first_then_reserve_then_stake(alice, bob, share):
    give(bob, RESERVE, 50_000)
    give(bob, STAKE, 500_000)
    offence = fine(bob, share)
    assert (offence.penalty, offence.taken, offence.compensated) == (CHARGED, CHARGED, CHARGED)
    assert (pending(bob), has(bob, RESERVE), has(bob, STAKE)) == (0, 0, 500_000 + 50_000 + PAID - CHARGED)
    assert available(alice) == 10 * DOLLAR  # all that it cost
    assert has(None, AccountKind.SLASH_POOL) == 0
    assert_ledger_is_true()


def test_what_a_fine_leaves_of_a_share_is_released_when_its_window_is_over(alice, bob):
    share = settle(alice, bob, charged=3 * DOLLAR)
    fine(bob, share, claimed=DOLLAR)
    assert settlement.release_pending(clock.now() + LATER) == 0
    assert offences.release_rest() == 0
    assert offences.release_rest(clock.now() + LATER) == 1
    assert offences.release_rest(clock.now() + LATER) == 0
    assert (earned(bob), pending(bob)) == (3 * DOLLAR * 9 // 10 - DOLLAR, 0)
    assert_ledger_is_true()


def test_a_fined_share_can_still_be_contested_for_what_is_left(alice, bob):
    share = settle(alice, bob, charged=3 * DOLLAR)
    fine(bob, share, claimed=DOLLAR)
    asked = {"customer_id": alice, "lease_id": share.lease_id, "text": "It lied.", "actor": "alice@example.org"}
    dispute = disputes.open_dispute(**asked)
    assert dispute.amount == 2 * DOLLAR
    assert offences.release_rest(clock.now() + LATER) == 0
    disputes.withdraw(dispute.pk, customer_id=alice, actor="alice@example.org")
    assert offences.release_rest(clock.now() + LATER) == 1
    assert earned(bob) == 3 * DOLLAR * 9 // 10 - DOLLAR
    assert_ledger_is_true()


def test_a_contested_share_is_not_fined_too(alice, bob, share):
    asked = {"customer_id": alice, "lease_id": share.lease_id, "text": "It lied.", "actor": "alice@example.org"}
    disputes.open_dispute(**asked)
    assert fine(bob, share).taken == 0
    assert_ledger_is_true()


def test_a_fine_that_finds_too_little_is_kept_and_an_alert_opens(alice, bob, share):
    offence = fine(bob, share, claimed=50 * DOLLAR)
    assert (offence.penalty, offence.taken) == (50 * DOLLAR, PAID)
    assert Alert.objects.open().get().kind == "offence_unpaid"
    assert earned(bob) == 0


def test_the_same_offence_counts_once(alice, bob, share):
    give(bob, STAKE, 10 * DOLLAR)
    offence_id = uuid4()
    first = fine(bob, share, offence_id)
    assert fine(bob, share, offence_id, claimed=9 * DOLLAR) == first
    assert has(bob, STAKE) == 10 * DOLLAR - (CHARGED - PAID)


def test_a_fine_keeps_to_its_bounds(alice, bob, share):
    give(bob, STAKE, 1000 * DOLLAR)
    assert fine(bob, share, claimed=0).penalty == DOLLAR
    assert fine(bob, share, claimed=900 * DOLLAR).penalty == 100 * DOLLAR
    with pytest.raises(OffenceUnknown):
        fine(bob, share, reason="node_drained")


def test_a_frozen_stake_is_left_alone(alice, bob, share):
    give(bob, STAKE, DOLLAR)
    stake = open_account(STAKE, bob)
    type(stake).objects.filter(pk=stake.pk).update(is_frozen=True)
    assert fine(bob, share, claimed=2 * DOLLAR).taken == PAID
    assert has(bob, STAKE) == DOLLAR


def test_ends_of_settled_jobs_are_judged_once_by_the_table(alice, bob, share):
    end(share, claimed=0)
    other = settle(alice, bob)
    end(other, reason="node_silent")  # costs what was lost, and nothing more
    assert offences.judge() == 1
    assert offences.judge() == 0
    assert Offence.objects.get().reason == "node_quarantined"


def test_an_unsettled_job_is_not_judged_yet(alice, bob, share):
    end(share)
    EndRecord.objects.all()
    made = EndRecord.objects.get()
    fields = {f.name: getattr(made, f.name) for f in EndRecord._meta.fields if f.name not in {"id", "asset"}}
    EndRecord.objects.create(**(fields | {"lease_id": uuid4(), "job_id": uuid4()}), asset_id=1)
    assert offences.judge() == 1


def test_contradictory_receipts_are_an_offence_with_their_evidence(alice, bob, share):
    end(share, reason="completed", fault="nobody")
    found = ReceiptEvidence.objects.create(
        job_id=share.settlement.job_id,
        lease_id=share.lease_id,
        seq=3,
        signer="0x" + "1" * 40,
        accepted_digest="0xaa",
        other_digest="0xbb",
        accepted={},
        other={},
    )
    assert (offences.judge(), offences.judge()) == (1, 0)
    offence = Offence.objects.get()
    assert (offence.pk, offence.reason, offence.evidence["other"]) == (found.pk, "equivocation", "0xbb")
    assert offence.penalty == DOLLAR  # it claimed nothing, so the least


def test_every_penalty_is_of_a_providers_fault():
    for reason in PENALTIES:
        assert reason == "equivocation" or REASONS[Reason(reason)].fault == Fault.PROVIDER


@pytest.mark.parametrize("table", ["endrecord", "offence", "offencetaking"])
def test_facts_and_fines_are_never_changed(alice, bob, share, table):
    end(share)
    fine(bob, share)
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM billing_{table}")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stake=st.integers(0, 5 * DOLLAR),
    reserve=st.integers(0, DOLLAR),
    fines=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4 * DOLLAR)), max_size=5),
)
def test_p25_slashing_is_at_most_what_is_there_and_once_per_offence(stake, reserve, fines):
    alice, bob = fund(uuid4()), uuid4()
    for kind, amount in ((STAKE, stake), (RESERVE, reserve)):
        if amount:
            give(bob, kind, amount)
    share = settle(alice, bob)
    ids = [uuid4() for _ in range(4)]
    first: dict[int, int] = {}
    for index, claimed in fines:
        offence = fine(bob, share, ids[index], claimed=claimed)
        assert first.setdefault(index, offence.taken) == offence.taken
    taken = sum(first.values())
    there = stake + reserve + PAID
    assert taken <= there
    assert has(bob, STAKE) + has(bob, RESERVE) + pending(bob) == there - taken
    assert has(bob, STAKE) >= 0 and pending(bob) >= 0
    assert available(alice) == 10 * DOLLAR - CHARGED + taken
    offences.release_rest(clock.now() + LATER)
    settlement.release_pending(clock.now() + LATER)
    assert pending(bob) == 0
    assert FEE + PAID == CHARGED
    assert_ledger_is_true()


@pytest.mark.django_db(transaction=True)
def test_many_fines_at_once_never_take_a_unit_twice():
    alice, bob = fund(uuid4()), uuid4()
    share = settle(alice, bob)
    give(bob, STAKE, DOLLAR)
    same = uuid4()
    found = race([lambda: fine(bob, share, same)] * 3 + [lambda: fine(bob, share, claimed=DOLLAR)] * 3)
    assert not [each for each in found if isinstance(each, Exception)]
    assert sum(offence.taken for offence in Offence.objects.all()) == PAID + DOLLAR
    assert (has(bob, STAKE), pending(bob)) == (0, 0)
    assert_ledger_is_true()


@pytest.mark.django_db(transaction=True)
def test_a_fine_and_a_release_at_once_never_spend_the_same_pay():
    alice, bob = fund(uuid4()), uuid4()
    share = settle(alice, bob)
    race([lambda: fine(bob, share), lambda: settlement.release_pending(clock.now() + LATER)])
    assert pending(bob) == 0
    assert earned(bob) + sum(offence.taken for offence in Offence.objects.all()) == PAID
    assert_ledger_is_true()


def test_the_rest_of_a_frozen_providers_pay_delays_nobody_elses(alice, bob):
    carol = uuid4()
    for provider in (bob, carol):
        fine(provider, settle(alice, provider, charged=3 * DOLLAR), claimed=DOLLAR)
    Account.objects.filter(pk=open_account(AccountKind.PROVIDER_PENDING, bob).pk).update(is_frozen=True)
    assert offences.release_rest(clock.now() + LATER) == 1
    assert (earned(bob), earned(carol)) == (0, 27 * DOLLAR // 10 - DOLLAR)
    Account.objects.filter(pk=open_account(AccountKind.PROVIDER_PENDING, bob).pk).update(is_frozen=False)
    assert offences.release_rest(clock.now() + LATER) == 1
    assert earned(bob) == earned(carol)
    assert_ledger_is_true()


def test_many_frozen_rests_keep_nobody_elses_rest_out_of_a_sweep(alice, bob, monkeypatch):
    carol = uuid4()
    for provider in (bob, carol):
        fine(provider, settle(alice, provider, charged=3 * DOLLAR), claimed=DOLLAR)
    Account.objects.filter(pk=open_account(AccountKind.PROVIDER_PENDING, bob).pk).update(is_frozen=True)
    monkeypatch.setattr(releasing, "SHARES_MAX", 1)
    assert offences.release_rest(clock.now() + LATER) == 1
    assert (earned(bob), earned(carol)) == (0, 27 * DOLLAR // 10 - DOLLAR)


def test_what_fines_left_of_many_shares_is_reckoned_in_one_question(alice, bob):
    counts = []
    open_account(AccountKind.PROVIDER_AVAILABLE, bob)
    for leases in (2, 5):
        shares = [settle(alice, bob, charged=DOLLAR) for _ in range(leases)]
        fine(bob, shares[0], claimed=(leases - 1) * DOLLAR)  # a fine takes the oldest first: all but a part of the last
        with CaptureQueriesContext(connection) as asked:
            assert offences.release_rest(clock.now() + LATER) == leases
        counts.append(len(asked))
    assert counts[0] == counts[1]
    assert_ledger_is_true()


@pytest.mark.django_db(transaction=True)
def test_a_fine_that_waited_for_a_dispute_leaves_what_the_dispute_froze(alice, bob):
    """PostgreSQL looks again at the share that it waited for, and not at the dispute beside it."""
    contested, other = settle(alice, bob), settle(alice, bob)
    is_open = Event()

    def dispute() -> None:
        with transaction.atomic():
            disputes.open_dispute(customer_id=alice, lease_id=contested.lease_id, text="It never ran.", actor="a")
            is_open.set()
            sleep(0.5)  # the fine waits for the share's row meanwhile

    def record() -> Offence:
        assert is_open.wait(10)
        return fine(bob, other, claimed=CHARGED)

    _, offence = race([dispute, record])
    assert [taking.share_id for taking in offence.takings.all()] == [other.pk]
    assert offence.taken == PAID
    assert_ledger_is_true()
