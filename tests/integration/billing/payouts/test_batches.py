"""A batch gives each provider what it would get alone, waits for nobody, and fails for nobody else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing import breaker, dispatch
from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import AccountName
from billing.charging import holds, settlement
from billing.charging.fees import split_fee
from billing.errors import TransferRefused
from billing.models import Account, Asset, Payout, PayoutSettings, ReserveSlice, SettlementShare
from billing.payouts import paying, rolling_reserve, running, submission
from billing.payouts.errors import RailOff
from billing.payouts.running import run_payouts
from billing.rails import registry
from billing.rails.fake.payout_rail import FakePayouts
from billing.rails.registry import source_of
from marketplace.foundation import clock
from marketplace.foundation.models import Event as StateEvent
from marketplace.foundation.models import OutboxMessage
from tests.integration.billing.payouts.scenes import (
    CENT,
    choose,
    earn,
    keep,
    kept,
    make_due,
    paid_outside,
    send,
    spendable,
    states,
    usd,
)
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, race

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

# What one provider may be like: pay by lease, minimum, and what else is the matter.
people = st.lists(
    st.tuples(
        st.lists(st.integers(1, 3 * DOLLAR), max_size=2),
        st.sampled_from([0, DOLLAR, 5 * DOLLAR]),
        st.sampled_from(["", "", "frozen", "moving", "under way", "not due", "failed too often", "seen"]),
    ),
    min_size=1,
    max_size=5,
)


def settle_in(somebody: tuple[list[int], int, str]) -> PayoutSettings:
    """One provider as described."""
    pays, minimum, matter = somebody
    provider = uuid4()
    for pay in pays:
        earn(provider, pay)
    row = choose(provider, "fake:old", minimum=minimum)
    fields: dict[str, Any] = {}
    if matter == "frozen":
        Account.objects.filter(owner_id=provider).update(is_frozen=True)
    if matter == "moving":
        fields = {"next_rail": "fake", "next_destination": "fake:new", "next_from": clock.now()}
    if matter == "under way" and spendable(provider) >= max(minimum, 2 * CENT):
        paying.pay_now(provider, usd(), actor="bob")
    if matter == "not due":
        fields = {"due_at": clock.now() + timedelta(hours=1)}
    if matter == "failed too often":
        fields = {"failures": paying.FAILURES_MAX}
    if matter == "seen":
        keep(provider)
    PayoutSettings.objects.filter(pk=row.pk).update(**fields)
    return row


def what_became(row: PayoutSettings) -> tuple[object, ...]:
    row.refresh_from_db()
    mine = row.provider_id
    payouts = Payout.objects.filter(provider_id=mine).order_by("created_at")
    slices = ReserveSlice.objects.filter(provider_id=mine).order_by("share__released_at", "share_id")
    return (
        [(one.amount, one.destination, one.state, one.rail) for one in payouts],
        (spendable(mine), kept(mine), ledger.balance(mine, AccountKind.PAYOUT_CLEARING)),
        [int(each) for each in slices.values_list("amount", flat=True)],
        row.due_at is not None and row.due_at > clock.now(),
        row.last_error.replace(str(mine), ""),
        (row.destination, row.next_destination, row.next_from),
    )


@pytest.mark.django_db
@given(people, st.sampled_from([0, 1000, 10_000]), st.integers(2, 4))
@hypothesis_settings(max_examples=6, deadline=None, suppress_health_check=QUIET)
def test_a_batch_pays_what_one_by_one_would(
    db: None,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    described: list[tuple[list[int], int, str]],
    bps: int,
    size: int,
) -> None:
    settings.SOUK_RESERVE_BPS = bps
    results = []
    for at_once in (1, size):
        PayoutSettings.objects.update(due_at=clock.now() + timedelta(days=9))
        rows = [settle_in(somebody) for somebody in described]
        monkeypatch.setattr(running, "PROVIDERS_PER_BATCH", at_once)
        run_payouts()
        results.append([what_became(row) for row in rows])
    assert results[0] == results[1]
    for row, (pays, minimum, matter) in zip(rows, described, strict=True):
        if matter in {"", "moving"}:  # and both are right: counted here by hand, share by share
            reserves = sum(split_fee(pay, bps)[0] for pay in pays)
            whole = (sum(pays) - reserves) // CENT * CENT
            paid = list(Payout.objects.filter(provider_id=row.provider_id).values_list("amount", flat=True))
            assert paid == ([whole] if whole >= max(minimum, 1) else [])
            assert kept(row.provider_id) == reserves
    assert_ledger_is_true()


@pytest.mark.django_db
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 300), st.sampled_from([1, 333, 10_000]))
@hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=QUIET)
def test_of_each_share_is_kept_what_one_after_the_other_would_keep(
    db: None, settings: Any, pays: list[int], left: int, bps: int
) -> None:
    settings.SOUK_RESERVE_BPS = bps
    bob = uuid4()
    for pay in pays:
        earn(bob, pay)
    left = min(left, sum(pays))
    assert sum(rolling_reserve.keep({(bob, 1): left}).values()) == kept(bob)
    expected, rest = [], left
    for share in SettlementShare.objects.filter(provider_id=bob).order_by("released_at", "pk"):
        part = min(split_fee(int(share.paid), bps)[0], rest)
        expected.append(part)
        rest -= part
    slices = ReserveSlice.objects.filter(provider_id=bob).order_by("share__released_at", "share_id")
    assert [int(each) for each in slices.values_list("amount", flat=True)] == expected


@pytest.mark.django_db
def test_what_a_run_asks_the_database_does_not_grow_with_the_providers(settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    counts = []
    for size in (2, 12):
        for _ in range(size):
            provider = uuid4()
            earn(provider)
            choose(provider)
        with CaptureQueriesContext(
            connection,
        ) as asked:
            assert run_payouts() == size
        counts.append(len(asked))
    assert counts[0] == counts[1]


@pytest.mark.django_db
def test_a_batch_that_fails_as_a_whole_is_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = [uuid4() for _ in range(4)]
    for provider in providers:
        earn(provider)
        choose(provider)
    bad = AccountName(AccountKind.PROVIDER_AVAILABLE, providers[2]).id
    post = ledger.post

    def refuse_one(transfers: Sequence[ledger.NewTransfer], **more: Any) -> Any:
        if any(new.debit.pk == bad for new in transfers):
            raise TransferRefused(why="a test says so")
        return post(transfers, **more)

    monkeypatch.setattr(ledger, "post", refuse_one)
    assert run_payouts() == 3
    assert [states(provider) for provider in providers] == [["reserved"], ["reserved"], [], ["reserved"]]
    monkeypatch.undo()


@pytest.mark.django_db
def test_each_payout_of_a_batch_records_its_own_events(db: None) -> None:
    for _ in range(3):
        provider = uuid4()
        earn(provider)
        choose(provider)
    run_payouts()
    send()
    for payout in Payout.objects.all():
        changes = list(
            StateEvent.objects.filter(subject_id=payout.pk).order_by("id").values_list("from_state", "to_state")
        )
        assert changes == [
            ("", "requested"),
            ("requested", "reserved"),
            ("reserved", "submitted"),
            ("submitted", "confirmed"),
        ]
        assert payout.pending_transfer is not None
        assert payout.pending_transfer.external_ref == f"payout:{payout.pk}"


@pytest.mark.django_db
def test_however_many_leases_all_are_looked_at_before_one_is_paid(bob: UUID, settings: Any) -> None:
    """Once, what was beyond 5,000 leases was paid without its reserve; now nothing counts them."""
    settings.SOUK_RESERVE_BPS = 1000
    for _ in range(2):
        earn(bob, 10 * CENT, leases=600)
    choose(bob)
    run_payouts()
    assert Payout.objects.get().amount == 108 * DOLLAR
    assert kept(bob) == 12 * DOLLAR


@pytest.mark.django_db
def test_a_breaker_opened_during_a_run_stops_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        provider = uuid4()
        earn(provider)
        choose(provider)
    monkeypatch.setattr(running, "PROVIDERS_PER_BATCH", 2)
    pay = running._pay_batch

    def pay_and_stop(*args: Any) -> int:
        made = pay(*args)
        breaker.open_breaker("test")
        return made

    monkeypatch.setattr(running, "_pay_batch", pay_and_stop)
    assert run_payouts() == 2
    assert Payout.objects.count() == 2


@pytest.mark.django_db
def test_a_breaker_opened_during_a_call_stops_what_has_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = [uuid4() for _ in range(30)]
    for provider in providers:
        earn(provider, DOLLAR)
        choose(provider)
    run_payouts()
    monkeypatch.setitem(registry.RAILS, "fake", replace(registry.row_of("fake"), at_a_time=20))
    submit = FakePayouts.submit

    def submit_and_stop(rail: FakePayouts, payouts: Sequence[Payout]) -> Any:
        answer = submit(rail, payouts)
        breaker.open_breaker("test")
        return answer

    monkeypatch.setattr(FakePayouts, "submit", submit_and_stop)
    dispatch.dispatch_due()
    monkeypatch.setattr(FakePayouts, "submit", submit)
    found = sorted(state for provider in providers for state in states(provider))
    assert found == ["confirmed"] * 20 + ["reserved"] * 10  # aside, not sent, not lost
    breaker.close_breaker(breaker.current(), actor="operator", note="A test.")
    send()
    assert [paid_outside(provider) for provider in providers] == [DOLLAR] * 30


@pytest.mark.django_db
def test_a_destination_that_ripens_onto_another_rail_is_paid_with_the_old_one_off(bob: UUID) -> None:
    earn(bob)
    row = choose(bob)
    PayoutSettings.objects.filter(pk=row.pk).update(
        rail="stripe", destination="acct_12345678", next_rail="fake", next_destination="fake:b", next_from=clock.now()
    )
    assert run_payouts() == 1
    assert Payout.objects.get().destination == "fake:b"


@pytest.mark.django_db
def test_nothing_is_set_aside_for_a_rail_that_is_off(bob: UUID, settings: Any) -> None:
    earn(bob)
    choose(bob, schedule="manual")
    settings.SOUK_PAYOUT_RAILS = []
    with pytest.raises(RailOff):
        paying.pay_now(bob, usd(), actor="bob")
    assert (states(bob), spendable(bob)) == ([], 10 * DOLLAR)


@pytest.mark.django_db
def test_cents_and_amounts_of_256_bits_go_in_one_batch(bob: UUID, alice: UUID, settings: Any) -> None:
    """One provider in two assets, on probation in both: each has its own reserve, to the unit."""
    settings.SOUK_RESERVE_BPS = 1000
    settings.SOUK_PAYOUT_RAILS = ["fake", "chain"]
    token = Asset.objects.create(id=9, code="TOK", scale=18, kind="erc20", chain_id=1, contract="0x" + "1" * 40)
    amount, job_id = 2**250 + 7, uuid4()
    deposits.credit(alice, amount, reference="t", actor="x", source=source_of("chain"), asset_id=token.pk)
    holds.place_hold(owner_id=alice, job_id=job_id, amount=amount, asset_id=token.pk)
    settlement.settle_job(job_id=job_id, charges=[settlement.LeaseCharge(uuid4(), bob, amount)], fee_bps=0)
    earn(bob, 3 * CENT)
    dollars = choose(bob)
    tokens = PayoutSettings.objects.create(
        provider_id=bob, asset=token, rail="chain", destination="0x" + "2" * 40, minimum=0, due_at=clock.now()
    )
    assert running._pay_batch([dollars.pk, tokens.pk], clock.now() + timedelta(seconds=1), ["fake", "chain"]) == 2
    found = {one.asset_id: int(one.amount) for one in Payout.objects.all()}
    assert found == {1: 2 * CENT, 9: amount - amount // 10}  # 0.3 cents are kept, 0.7 are dust
    assert ledger.balance(bob, AccountKind.PROVIDER_RESERVE, asset_id=9) == amount // 10
    assert Payout.objects.values("batch_id").distinct().count() == 2  # a call a rail and asset


@pytest.mark.django_db
def test_a_payout_whose_call_is_gone_is_found_behind_many_whose_call_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = [uuid4() for _ in range(4)]
    for provider in providers:
        earn(provider, DOLLAR)
        choose(provider, schedule="manual")
        paying.pay_now(provider, usd(), actor="bob")
    newest = Payout.objects.latest("created_at")
    OutboxMessage.objects.filter(business_key=f"{paying.SUBMIT}:{newest.batch_id}").update(state="failed")
    monkeypatch.setattr(submission, "LOST_AFTER", timedelta(0))
    monkeypatch.setattr(submission, "PAYOUTS_PER_CALL_MAX", 2)
    assert submission.heal_lost() == 1
    send()
    assert [paid_outside(provider) for provider in providers] == [DOLLAR] * 4


@pytest.mark.django_db(transaction=True)
def test_a_batch_waits_for_nobodys_account_and_pays_its_owner_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody locks two providers' accounts against the order of a batch: a chargeback, or an operator's query."""
    providers = [uuid4() for _ in range(6)]
    rows = []
    for provider in providers:
        earn(provider)
        rows.append(choose(provider))
    ids = sorted(AccountName(AccountKind.PROVIDER_AVAILABLE, provider).id for provider in providers)
    has_one = Event()

    def lock_backwards() -> object:
        with transaction.atomic():
            Account.objects.select_for_update().get(pk=ids[-1])
            has_one.set()
            time.sleep(0.6)
            Account.objects.select_for_update().get(pk=ids[0])
        return None

    def pay() -> object:
        assert has_one.wait(timeout=20)
        return running._pay_batch([row.pk for row in rows], clock.now(), ["fake"])

    assert race([lock_backwards, pay]) == [None, 6]
    assert "could not be made" not in caplog.text  # nobody was sacrificed to a deadlock
    assert [states(provider) for provider in providers] == [["reserved"]] * 6


@pytest.mark.django_db(transaction=True)
def test_runs_settlements_releases_and_returns_at_once_lose_and_double_nothing(settings: Any) -> None:
    settings.SOUK_RESERVE_BPS = 1000
    providers = [uuid4() for _ in range(6)]
    rows = []
    for provider in providers:
        earn(provider)
        rows.append(choose(provider))
    ids = [row.pk for row in rows]
    verbs: list[Any] = [partial(running._pay_batch, ids, clock.now(), ["fake"])] * 3
    verbs += [partial(earn, provider, DOLLAR) for provider in providers]
    verbs += [settlement.release_pending, rolling_reserve.release_ripe, dispatch.dispatch_due] * 2
    answers = race(verbs)
    assert not [each for each in answers if isinstance(each, Exception)], answers
    settlement.release_pending()
    for row in rows:
        make_due(row)
    send()
    run_payouts()
    send()
    for provider in providers:
        assert paid_outside(provider) + spendable(provider) + kept(provider) == 11 * DOLLAR
        assert kept(provider) == 11 * DOLLAR // 10
    assert_ledger_is_true()
