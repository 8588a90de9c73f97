"""The comparison with stripe-python's types finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.contracts.stripe.comparing import differences_from_types
from tests.contracts.stripe.conftest import World


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"reversed": ...}, "transfer.reversed: missing"),
        ({"amount": None}, "transfer.amount: None is no int"),
        ({"amount": True}, "transfer.amount: True is no int"),
        ({"amount": "100"}, "transfer.amount: '100' is no int"),
        ({"profit": 1}, "transfer.profit: unknown to stripe-python"),
        ({"destination": 7}, "transfer.destination: 7 is no str"),
        ({"metadata": []}, "transfer.metadata: [] is no object"),
        ({"object": "list", "data": [{"object": "refund"}]}, "refund.amount: missing"),
    ],
)
def test_a_wrong_object_is_distinguished_from_a_right_one(faked: World, change: dict[str, object], found: str) -> None:
    charge = faked.paid(5_000, "pm_card_bypassPending").latest_charge
    made = faked.v1.transfers.create(
        {"amount": 100, "currency": "usd", "destination": faked.connected(), "source_transaction": charge.id}
    ).to_dict()
    assert differences_from_types(made) == []
    wrong = {name: value for name, value in (made | change).items() if value is not ...}
    assert found in differences_from_types(wrong)
