"""The ledger's properties that the database itself holds, tried past every verb; and what is no amount, refused."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.account_kinds import AccountKind
from billing.books import deposits, ledger
from billing.books.chart_of_accounts import open_account
from billing.charging import holds, settlement
from billing.charging.settlement import LeaseCharge
from billing.errors import BillingError, InsufficientFunds, TransferRefused
from billing.fields import AMOUNT_MAX
from billing.models import Account, Asset, Hold, Settlement, SettlementShare, Transfer
from billing.rails.registry import source_of
from billing.states import HoldState
from billing.transfer_codes import TransferCode, TransferMode
from marketplace.foundation import clock
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available, held

TOKEN = 7
K, M = AccountKind, TransferMode


@pytest.fixture
def token(db: None) -> int:
    Asset.objects.create(id=TOKEN, code="TOK", scale=18, kind="erc20", chain_id=1, contract="0x" + "1" * 40)
    return TOKEN


def give(owner_id: UUID, amount: int, asset_id: int = TOKEN) -> UUID:
    deposits.credit(owner_id, amount, reference=str(uuid4()), actor="t", source=source_of("chain"), asset_id=asset_id)
    return owner_id


def at_commit() -> None:
    """What the deferred constraints say now."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def move(debit: Account, credit: Account, amount: int, **more: Any) -> ledger.NewTransfer:
    return ledger.NewTransfer(debit, credit, amount, TransferCode.CORRECTION, **more)


@pytest.mark.parametrize("state", [HoldState.CAPTURED, HoldState.RELEASED, HoldState.EXPIRED])
def test_P07_no_hold_ends_with_money_in_its_account(alice: UUID, job_id: UUID, state: HoldState) -> None:
    hold = holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    with pytest.raises(IntegrityError, match="is set aside for job"), transaction.atomic():
        Hold.objects.filter(pk=hold.pk).update(state=state, closed_at=clock.now())
        at_commit()
    assert held(alice) == DOLLAR


def test_P07_no_money_goes_into_or_out_of_a_job_but_by_its_hold(alice: UUID, job_id: UUID) -> None:
    wallet, aside = open_account(K.CUSTOMER_AVAILABLE, alice), open_account(K.JOB_HOLD, alice, job_id=job_id)
    with pytest.raises(IntegrityError, match="is set aside for job"), transaction.atomic():
        ledger.post([move(wallet, aside, 5)])
        at_commit()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    with pytest.raises(IntegrityError, match="is set aside for job"), transaction.atomic():
        ledger.post([move(aside, wallet, 5)])
        at_commit()
    with pytest.raises(IntegrityError, match="is set aside for job"), transaction.atomic():
        Hold.objects.filter(job_id=job_id).update(amount=DOLLAR + 1)
        at_commit()
    assert_ledger_is_true()


def test_P07_no_job_ends_with_a_pending_transfer(alice: UUID, bob: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    wallets = open_account(K.CUSTOMER_AVAILABLE, alice), open_account(K.CUSTOMER_AVAILABLE, bob)
    [pending] = ledger.post([move(*wallets, 5, mode=M.PENDING, job_id=job_id)])
    with pytest.raises(IntegrityError, match="has a pending transfer"), transaction.atomic():
        holds.release_hold(job_id)
        at_commit()
    ledger.post([move(*wallets, 5, mode=M.VOID, pending_id=pending.pk, job_id=job_id)])
    holds.release_hold(job_id)
    at_commit()


def settlement_by_hand(hold: Hold, **changes: Any) -> Settlement:
    """Its rows without the verb: half of the hold to one lease, a tenth of that the fee."""
    half = hold.amount // 2
    fields: dict[str, Any] = {"charged": half, "fee": half // 10, "paid": half - half // 10}
    now = clock.now()
    row = Settlement.objects.create(
        hold=hold,
        job_id=hold.job_id,
        owner_id=hold.owner_id,
        asset_id=hold.asset_id,
        fee_bps=1000,
        held=hold.amount,
        refunded=hold.amount - half,
        challenge_until=now,
        **fields,
    )
    share = fields | changes
    SettlementShare.objects.create(settlement=row, lease_id=uuid4(), provider_id=uuid4(), challenge_until=now, **share)
    return row


@pytest.mark.parametrize(
    "shift", [{"charged": 1, "paid": 1}, {"charged": -1, "fee": -1}, {"fee": 1, "paid": -1}], ids=str
)
def test_P08_shares_that_do_not_add_up_are_refused(alice: UUID, job_id: UUID, shift: dict[str, int]) -> None:
    hold = holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    half = DOLLAR // 2
    right = {"charged": half, "fee": half // 10, "paid": half - half // 10}
    with pytest.raises(IntegrityError, match="refused by shares_add_up"), transaction.atomic():
        settlement_by_hand(hold, **{name: value + shift.get(name, 0) for name, value in right.items()})
        Hold.objects.filter(pk=hold.pk).update(state="captured", closed_at=clock.now())
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS settlement_adds_up IMMEDIATE")


def test_P08_a_settlement_of_an_open_hold_is_refused(alice: UUID, job_id: UUID) -> None:
    hold = holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    with pytest.raises(IntegrityError, match="settlement_is_of_its_hold"), transaction.atomic():
        settlement_by_hand(hold)
        at_commit()


def test_P08_no_share_is_added_later(alice: UUID, bob: UUID, job_id: UUID) -> None:
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    settled = settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, 100)], fee_bps=0)
    with pytest.raises(IntegrityError, match="shares_add_up"), transaction.atomic():
        SettlementShare.objects.create(
            settlement=settled, lease_id=uuid4(), provider_id=bob, charged=1, fee=0, paid=1, challenge_until=clock.now()
        )
        at_commit()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hold=st.integers(1, AMOUNT_MAX), charged=st.integers(0, AMOUNT_MAX), fee_bps=st.integers(0, 10_000))
def test_P08_P12_any_settlement_of_up_to_256_bits_is_exact(token: int, hold: int, charged: int, fee_bps: int) -> None:
    charged %= hold + 1
    alice, bob, job_id = give(uuid4(), hold), uuid4(), uuid4()
    fees_before = ledger.balance(None, K.FEE_REVENUE, asset_id=token)
    holds.place_hold(owner_id=alice, job_id=job_id, amount=hold, asset_id=token)
    settled = settlement.settle_job(job_id=job_id, charges=[LeaseCharge(uuid4(), bob, charged)], fee_bps=fee_bps)
    fee = ledger.balance(None, K.FEE_REVENUE, asset_id=token) - fees_before
    paid = ledger.balance(bob, K.PROVIDER_PENDING, asset_id=token)
    rest = ledger.balance(alice, K.CUSTOMER_AVAILABLE, asset_id=token)
    assert (fee, paid, rest) == (settled.fee, settled.paid, settled.refunded)
    assert fee == charged * fee_bps // 10_000 <= charged
    assert fee + paid + rest == hold
    assert ledger.balance(alice, K.JOB_HOLD, asset_id=token) == 0


def test_P03_nobody_ever_has_more_than_256_bits_count(token: int) -> None:
    """Two who have everything pay one: the second is refused, by name, and nothing has changed."""
    alice, bob, carol = (give(uuid4(), amount) for amount in (AMOUNT_MAX, AMOUNT_MAX, 1))
    wallets = [open_account(K.CUSTOMER_AVAILABLE, who, asset_id=token) for who in (alice, bob, carol)]
    ledger.post([move(wallets[0], wallets[2], AMOUNT_MAX - 1)])
    with pytest.raises(TransferRefused, match=r"hold more than 2\*\*256 - 1"):
        ledger.post([move(wallets[1], wallets[2], 1)])
    with pytest.raises(IntegrityError, match="account_balance_fits"), transaction.atomic():
        Transfer.objects.create(
            group_id=uuid4(), asset_id=token, debit=wallets[1], credit=wallets[2], amount=1, code="correction"
        )
    assert ledger.balance(carol, K.CUSTOMER_AVAILABLE, asset_id=token) == AMOUNT_MAX
    assert_ledger_is_true()


def test_P02_what_went_through_an_account_outgrows_256_bits(token: int) -> None:
    alice, mirror = give(uuid4(), AMOUNT_MAX), open_account(K.CHAIN_ESCROW, asset_id=token)
    wallet = open_account(K.CUSTOMER_AVAILABLE, alice, asset_id=token)
    for _ in range(20):
        ledger.post([move(wallet, mirror, AMOUNT_MAX)])
        ledger.post([move(mirror, wallet, AMOUNT_MAX)])
    wallet.refresh_from_db()
    assert wallet.credits_posted == 21 * AMOUNT_MAX
    assert_ledger_is_true()


NO_AMOUNTS: list[Any] = [
    0,
    -1,
    -AMOUNT_MAX,
    AMOUNT_MAX + 1,
    2**300,
    1.0,
    1.5,
    float("nan"),
    float("inf"),
    True,
    Decimal("1.5"),
    Decimal(1),
    "5",
    None,
]


VERBS = ("deposit", "hold", "extend", "post", "charge")
REFUSED = [(verb, amount) for verb in VERBS for amount in NO_AMOUNTS if (verb, amount) != ("charge", 0)]


@pytest.mark.parametrize(("verb", "amount"), REFUSED, ids=repr)
def test_what_is_no_amount_is_refused_and_changes_nothing(alice: UUID, bob: UUID, verb: str, amount: Any) -> None:
    job_id, present = uuid4(), uuid4()
    holds.place_hold(owner_id=alice, job_id=present, amount=DOLLAR)
    wallets = open_account(K.CUSTOMER_AVAILABLE, alice), open_account(K.CUSTOMER_AVAILABLE, bob)
    verbs: dict[str, Callable[[], object]] = {
        "deposit": lambda: deposits.credit(alice, amount, reference="wire", actor="operator@example.org"),
        "hold": lambda: holds.place_hold(owner_id=alice, job_id=job_id, amount=amount),
        "extend": lambda: holds.extend_hold(present, amount=amount),
        "post": lambda: ledger.post([move(*wallets, amount)]),
        "charge": lambda: settlement.settle_job(
            job_id=present, charges=[LeaseCharge(uuid4(), bob, amount)], fee_bps=1000
        ),
    }
    with pytest.raises(BillingError):
        verbs[verb]()
    assert (available(alice), held(alice), available(bob)) == (9 * DOLLAR, DOLLAR, 0)
    assert_ledger_is_true()


def test_another_assets_money_covers_no_hold(alice: UUID, token: int, job_id: UUID) -> None:
    with pytest.raises(InsufficientFunds) as refused:
        holds.place_hold(owner_id=alice, job_id=job_id, amount=1, asset_id=token)
    assert refused.value.details["asset"] == "TOK"
    with pytest.raises(TransferRefused, match="no asset 99"):
        holds.place_hold(owner_id=alice, job_id=job_id, amount=1, asset_id=99)
    assert available(alice) == 10 * DOLLAR


def test_no_account_is_of_an_asset_that_is_not_there(alice: UUID) -> None:
    with pytest.raises(IntegrityError, match="no asset 99"), transaction.atomic():
        open_account(K.ROUNDING, asset_id=99)


def test_an_asset_stays_and_keeps_its_unit(alice: UUID, token: int) -> None:
    for change in (
        "DELETE FROM billing_asset",
        "UPDATE billing_asset SET scale = 2",
        "UPDATE billing_asset SET id = 9",
    ):
        with pytest.raises(DatabaseError, match="immutable"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"{change} WHERE id = {TOKEN}")
