"""What `post` does, and what the database refuses even to those who go around it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import open_account
from billing.books.ledger import NewTransfer
from billing.errors import AccountFrozen, BillingError, InsufficientFunds, TransferRefused
from billing.fields import AMOUNT_MAX
from billing.models import Account, Asset, Transfer
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from marketplace.foundation.ids import new_id
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, fund

K, M = AccountKind, TransferMode


def wallet(owner_id: UUID, kind: AccountKind = K.CUSTOMER_AVAILABLE) -> Account:
    return open_account(kind, owner_id)


def move(debit: Account, credit: Account, amount: int, **more: Any) -> NewTransfer:
    return NewTransfer(debit, credit, amount, TransferCode.CORRECTION, **more)


def insert(debit: Account, credit: Account, amount: int, **more: Any) -> Transfer:
    """Around `post`, straight into the table."""
    fields: dict[str, Any] = {"asset_id": debit.asset_id, "code": TransferCode.CORRECTION, "group_id": new_id()}
    return Transfer.objects.create(debit=debit, credit=credit, amount=amount, **(fields | more))


def test_a_transfer_moves_both_sums(alice: UUID, bob: UUID) -> None:
    [row] = ledger.post([move(wallet(alice), wallet(bob), 3 * DOLLAR)])
    assert row.seq > 0
    assert (available(alice), available(bob)) == (7 * DOLLAR, 3 * DOLLAR)
    assert wallet(alice).debits_posted == wallet(bob).credits_posted == 3 * DOLLAR
    assert_ledger_is_true()


def test_a_group_is_all_or_nothing_and_judged_as_a_whole(alice: UUID, bob: UUID) -> None:
    carol = uuid4()
    ledger.post([move(wallet(bob), wallet(carol), DOLLAR), move(wallet(alice), wallet(bob), DOLLAR)])
    assert (available(bob), available(carol)) == (0, DOLLAR)
    with pytest.raises(InsufficientFunds):
        ledger.post([move(wallet(alice), wallet(bob), DOLLAR), move(wallet(carol), wallet(bob), DOLLAR + 1)])
    assert (available(alice), available(bob)) == (9 * DOLLAR, 0)
    assert ledger.post([]) == []


def test_the_largest_amount_of_a_token_is_kept_exactly(alice: UUID, bob: UUID) -> None:
    ledger.post([move(open_account(K.OPERATOR_CASH), wallet(bob), AMOUNT_MAX)])
    assert available(bob) == AMOUNT_MAX
    ledger.post([move(wallet(bob), open_account(K.OPERATOR_CASH), AMOUNT_MAX - 1)])
    assert available(bob) == 1
    assert_ledger_is_true()


def test_an_amount_of_more_than_any_token_has_is_refused(db: None, bob: UUID) -> None:
    cash = open_account(K.OPERATOR_CASH)
    with pytest.raises(TransferRefused, match="at most 2"):
        ledger.post([move(cash, wallet(bob), AMOUNT_MAX + 1)])
    ledger.post([move(cash, wallet(bob), AMOUNT_MAX)])
    with pytest.raises(TransferRefused, match="would hold more"):
        ledger.post([move(cash, wallet(bob), 1)])
    assert available(bob) == AMOUNT_MAX


@pytest.mark.parametrize("amount", [True, 1.0, "1", None])
def test_an_amount_is_a_whole_number(alice: UUID, bob: UUID, amount: Any) -> None:
    with pytest.raises(TransferRefused, match="whole number"):
        ledger.post([move(wallet(alice), wallet(bob), amount)])


def test_a_group_has_so_many_transfers_at_most(alice: UUID, bob: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "TRANSFERS_PER_POST_MAX", 2)
    assert len(ledger.post([move(wallet(alice), wallet(bob), 1)] * 2)) == 2
    with pytest.raises(TransferRefused, match="at most 2 transfers"):
        ledger.post([move(wallet(alice), wallet(bob), 1)] * 3)
    assert available(bob) == 2


def test_a_refused_group_leaves_the_transaction_around_it_whole(alice: UUID, bob: UUID) -> None:
    twice = new_id()
    with transaction.atomic():
        ledger.post([move(wallet(alice), wallet(bob), 1)])
        with pytest.raises(IntegrityError):
            ledger.post([move(wallet(alice), wallet(bob), 1, mode=M.POST, pending_id=twice)])
        ledger.post([move(wallet(alice), wallet(bob), 1)])
    assert available(bob) == 2


def test_a_refusal_says_what_is_missing(alice: UUID, bob: UUID) -> None:
    with pytest.raises(InsufficientFunds) as refused:
        ledger.post([move(wallet(alice), wallet(bob), 12 * DOLLAR)])
    error = refused.value
    assert (error.available, error.needed, error.missing) == (10 * DOLLAR, 12 * DOLLAR, 2 * DOLLAR)


def test_a_row_is_returned_as_the_database_has_it(alice: UUID, bob: UUID) -> None:
    when = clock.now() - timedelta(days=3)
    job_id, group_id = uuid4(), new_id()
    more = {"job_id": job_id, "external_ref": "a, 'b' {c}"}
    first, second = ledger.post(
        [move(wallet(alice), wallet(bob), 1, effective_at=when, **more), move(wallet(alice), wallet(bob), 2)],
        group_id=group_id,
    )
    for row in (first, second):
        kept = Transfer.objects.get(pk=row.pk)
        fields = [field.attname for field in Transfer._meta.concrete_fields if field.attname != "row_hash"]
        assert {name: getattr(row, name) for name in fields} == {name: getattr(kept, name) for name in fields}
        assert row.group_id == group_id
    assert (first.effective_at, first.job_id, first.external_ref) == (when, job_id, "a, 'b' {c}")
    assert second.effective_at == second.created_at


@pytest.mark.parametrize("amount", [0, -1])
def test_an_amount_is_above_zero(alice: UUID, bob: UUID, amount: int) -> None:
    with pytest.raises(TransferRefused, match="above zero"):
        ledger.post([move(wallet(alice), wallet(bob), amount)])
    with pytest.raises(IntegrityError, match="transfer_amount_positive"), transaction.atomic():
        insert(wallet(alice), wallet(bob), amount)


def test_money_does_not_go_in_a_circle_of_one(alice: UUID) -> None:
    with pytest.raises(TransferRefused, match="same account"):
        ledger.post([move(wallet(alice), wallet(alice), 1)])
    with pytest.raises(IntegrityError, match="transfer_between_two_accounts"), transaction.atomic():
        insert(wallet(alice), wallet(alice), 1)


def test_P13_no_transfer_mixes_assets(alice: UUID, bob: UUID) -> None:
    Asset.objects.create(id=7, code="TOK", scale=18, kind="erc20", chain_id=1, contract="0x" + "1" * 40)
    tokens = open_account(K.CUSTOMER_AVAILABLE, bob, asset_id=7)
    with pytest.raises(TransferRefused, match="different assets"):
        ledger.post([move(wallet(alice), tokens, 1)])
    with pytest.raises(TransferRefused, match="different assets"):
        ledger.post([move(tokens, wallet(alice), 1)])
    for asset_id in (1, 7):
        with pytest.raises(IntegrityError, match="of_its_asset"), transaction.atomic():
            insert(wallet(alice), tokens, 1, asset_id=asset_id)
    ledger.post([move(open_account(K.CHAIN_ESCROW, asset_id=7), tokens, 5)])
    assert ledger.balance(bob, K.CUSTOMER_AVAILABLE, asset_id=7) == 5
    assert available(bob) == 0
    assert ledger.trial_balance() == {"TOK": 0, "USD": 0}


def test_P03_an_overdraft_is_impossible_even_around_the_ledger(alice: UUID, bob: UUID) -> None:
    with pytest.raises(IntegrityError, match="account_not_overdrawn"), transaction.atomic():
        insert(wallet(alice), wallet(bob), 10 * DOLLAR + 1)
    assert available(alice) == 10 * DOLLAR


def test_a_frozen_account_takes_money_and_gives_none(alice: UUID, bob: UUID) -> None:
    Account.objects.filter(pk=wallet(alice).pk).update(is_frozen=True)
    with pytest.raises(AccountFrozen):
        ledger.post([move(wallet(alice), wallet(bob), 1)])
    with pytest.raises(IntegrityError, match="frozen"), transaction.atomic():
        insert(wallet(alice), wallet(bob), 1)
    fund(alice, DOLLAR)
    assert available(alice) == 11 * DOLLAR


@pytest.mark.parametrize("is_frozen", [True, False])
def test_what_may_leave_a_frozen_account_leaves_it_as_frozen_as_before(alice: UUID, bob: UUID, is_frozen: bool) -> None:
    Account.objects.filter(pk=wallet(alice).pk).update(is_frozen=is_frozen)
    with transaction.atomic():
        [row] = ledger.post_from_frozen(wallet(alice), [move(wallet(alice), wallet(bob), 3)], group_id=new_id())
    assert row.amount == available(bob) == 3
    assert wallet(alice).is_frozen == is_frozen
    assert not wallet(bob).is_frozen


def test_P04_a_pending_transfer_reserves_and_is_resolved_once(alice: UUID, bob: UUID) -> None:
    [pending] = ledger.post([move(wallet(alice), wallet(bob), 4 * DOLLAR, mode=M.PENDING)])
    assert (available(alice), available(bob)) == (6 * DOLLAR, 0)
    with pytest.raises(InsufficientFunds):
        ledger.post([move(wallet(alice), wallet(bob), 6 * DOLLAR + 1)])

    ledger.post([move(wallet(alice), wallet(bob), 3 * DOLLAR, mode=M.POST, pending_id=pending.pk)])
    assert (available(alice), available(bob)) == (7 * DOLLAR, 3 * DOLLAR)  # the fourth dollar came back
    for mode, amount in ((M.POST, 3 * DOLLAR), (M.VOID, 4 * DOLLAR)):
        with pytest.raises(IntegrityError, match="pending_resolved_once"), transaction.atomic():
            ledger.post([move(wallet(alice), wallet(bob), amount, mode=mode, pending_id=pending.pk)])
    assert_ledger_is_true()


def test_a_voided_transfer_gives_everything_back(alice: UUID, bob: UUID) -> None:
    [pending] = ledger.post([move(wallet(alice), wallet(bob), 4 * DOLLAR, mode=M.PENDING)])
    ledger.post([move(wallet(alice), wallet(bob), 4 * DOLLAR, mode=M.VOID, pending_id=pending.pk)])
    assert (available(alice), available(bob)) == (10 * DOLLAR, 0)
    assert wallet(alice).debits_pending == wallet(bob).credits_pending == 0
    assert_ledger_is_true()


@pytest.mark.parametrize(
    ("mode", "amount", "is_reversed"),
    [(M.POST, 5, False), (M.VOID, 3, False), (M.POST, 4, True)],
    ids=["posts more", "voids a part", "other way round"],
)
def test_P04_a_resolution_fits_what_it_resolves(
    alice: UUID, bob: UUID, mode: TransferMode, amount: int, is_reversed: bool
) -> None:
    debit, credit = wallet(alice), wallet(bob)
    [pending] = ledger.post([move(debit, credit, 4, mode=M.PENDING)])
    if is_reversed:
        debit, credit = credit, debit
    with pytest.raises((IntegrityError, BillingError), match=r"fit its pending|more is needed"), transaction.atomic():
        insert(debit, credit, amount, mode=mode, pending_id=pending.pk)
    [plain] = ledger.post([move(wallet(alice), wallet(bob), 4)])
    with pytest.raises(IntegrityError, match="fit its pending"), transaction.atomic():
        insert(wallet(alice), wallet(bob), 4, mode=M.POST, pending_id=plain.pk)


def test_fee_revenue_has_no_row_that_settlements_wait_for(alice: UUID) -> None:
    fees = open_account(K.FEE_REVENUE)
    before = ledger.balance(None, K.FEE_REVENUE)
    ledger.post([move(wallet(alice), fees, 5)])
    fees.refresh_from_db()
    assert not fees.is_summed
    assert ledger.balance(None, K.FEE_REVENUE) == before + 5
    with pytest.raises(IntegrityError, match="single transfers only"), transaction.atomic():
        insert(wallet(alice), fees, 5, mode=M.PENDING)
    assert_ledger_is_true()


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"kind": "customer_available", "is_nonnegative": True}, "account_has_its_owner"),
        ({"kind": "customer_available", "owner_id": uuid4(), "is_nonnegative": False}, "others_money_nonnegative"),
        ({"kind": "job_hold", "owner_id": uuid4(), "is_nonnegative": True}, "account_of_a_job_is_its_hold"),
        ({"kind": "piggy_bank", "is_nonnegative": False}, "account_kind_known"),
        ({"kind": "fee_revenue", "is_nonnegative": True, "is_summed": False}, "account_without_sum_has_no_floor"),
        ({"kind": "rounding", "is_nonnegative": False, "credits_posted": 5}, "written by its transfers only"),
    ],
)
def test_the_database_knows_what_an_account_is(alice: UUID, fields: dict[str, Any], constraint: str) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Account.objects.create(asset_id=1, **fields)


def test_an_account_is_opened_once(alice: UUID) -> None:
    assert wallet(alice) == wallet(alice)
    with pytest.raises(IntegrityError, match="account_once"), transaction.atomic():
        Account.objects.create(asset_id=1, kind="customer_available", owner_id=alice, is_nonnegative=True)


Steps = list[tuple[int, int, int, TransferMode, bool]]  # debit, credit, amount, mode, around `post`?
steps = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=3),
        st.integers(min_value=0, max_value=3),
        st.integers(min_value=1, max_value=1200),
        st.sampled_from(list(M)),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_P01_P02_P03_P04_whatever_is_tried_the_ledger_stays_true(db: None, steps: Steps) -> None:
    owners = [fund(uuid4(), 1000) for _ in range(4)]
    pendings: list[Transfer] = []
    for debit, credit, amount, mode, is_around in steps:
        new: dict[str, Any] = {"mode": mode}
        legs = (wallet(owners[debit]), wallet(owners[credit]))
        if mode in {M.POST, M.VOID} and pendings:
            chosen = pendings[amount % len(pendings)]
            legs, amount = (chosen.debit, chosen.credit), min(amount, chosen.amount)  # noqa: PLW2901
            new["pending_id"] = chosen.pk
        try:
            with transaction.atomic():
                row = insert(*legs, amount, **new) if is_around else ledger.post([move(*legs, amount, **new)])[0]
        except (BillingError, IntegrityError):
            continue
        if mode == M.PENDING:
            pendings.append(row)
        assert all(account.available >= 0 for account in Account.objects.filter(owner_id__in=owners))
        assert all(totals.is_balanced for totals in ledger.asset_totals())
    accounts = Account.objects.filter(owner_id__in=owners)
    assert sum(account.available + account.debits_pending for account in accounts) == 4000
    resolved = [row.pending_id for row in Transfer.objects.exclude(pending=None)]
    assert len(resolved) == len(set(resolved))
    assert ledger.verify().problems == []
