"""Money enters once per reference."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from billing.books import deposits
from billing.errors import AmountInvalid, DepositConflict
from billing.models import Deposit
from tests.integration.billing.scenes import DOLLAR, assert_ledger_is_true, available


def test_a_deposit_can_be_spent(db: None) -> None:
    alice = uuid4()
    transfer = deposits.credit(alice, 5 * DOLLAR, reference="wire 1", actor="operator@example.org")
    assert available(alice) == transfer.amount == 5 * DOLLAR
    assert Deposit.objects.get(transfer=transfer).actor == "operator@example.org"
    assert_ledger_is_true()


def test_the_same_reference_counts_once(db: None) -> None:
    alice = uuid4()
    first = deposits.credit(alice, 5 * DOLLAR, reference="wire 1", actor="operator@example.org")
    assert deposits.credit(alice, 5 * DOLLAR, reference="wire 1", actor="other@example.org") == first
    assert available(alice) == 5 * DOLLAR


def test_a_reference_of_another_deposit_is_refused(alice: UUID) -> None:
    deposits.credit(alice, DOLLAR, reference="wire 1", actor="operator@example.org")
    for owner_id, amount in ((uuid4(), DOLLAR), (alice, 2 * DOLLAR)):
        with pytest.raises(DepositConflict):
            deposits.credit(owner_id, amount, reference="wire 1", actor="operator@example.org")


@pytest.mark.parametrize(
    ("amount", "reference", "error"),
    [(0, "wire", AmountInvalid), (-1, "wire", AmountInvalid), (1, " ", DepositConflict)],
)
def test_a_deposit_is_above_zero_and_says_where_it_is_from(
    db: None, amount: int, reference: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        deposits.credit(uuid4(), amount, reference=reference, actor="operator@example.org")
