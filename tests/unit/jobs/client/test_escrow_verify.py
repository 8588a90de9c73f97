"""The bill of a job that a contract paid: a true one verifies; whatever Mallory forges in it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from jobs.client.verify.bill import verify_bill
from jobs.wire import BillView
from provider_agent.protocol import (
    ZERO_ADDRESS,
    charge,
)
from tests.unit.jobs.client.token_bills import (
    BOB,
    CLAIMED_MS,
    HELD,
    MALLORY,
    RATE,
    TOKEN,
    Bill,
    true_bill,
)


def problem(bill: Bill) -> str:
    return verify_bill(BillView.model_validate(bill)).problem or ""


def test_a_true_bill_of_a_contract_verifies() -> None:
    assert problem(true_bill()) == ""


def test_a_bill_is_true_while_its_pay_can_still_be_contested() -> None:
    bill = true_bill()
    lease = bill["escrow"]["leases"][0]
    lease |= {"pending_units": lease["settled_units"], "paid_units": "0", "fee_units": "0"}
    bill["fee_usd_micros"] = 0
    assert problem(bill) == ""


def _lease(**changes: Any) -> Callable[[Bill], None]:
    return lambda bill: bill["escrow"]["leases"][0].update(changes)


def _hold(**changes: Any) -> Callable[[Bill], None]:
    return lambda bill: bill["escrow"].update(changes)


def _settle(seq_amount: int) -> Callable[[Bill], None]:
    """The contract is reported to have settled another amount, consistently."""

    def forge(bill: Bill) -> None:
        parts = {"settled_units": str(seq_amount), "paid_units": str(seq_amount - 1200)}
        bill["escrow"]["leases"][0].update(parts)
        bill["escrow"].update(settled_units=str(seq_amount), refunded_units=str(HELD - seq_amount))

    return forge


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (_lease(paid_units="10801"), "do not add up"),
        (_lease(paid_units="-1", refunded_units="10801"), "do not add up"),
        (_lease(provider=MALLORY.address), "and the receipts are signed for"),
        (_lease(lease_id=str(uuid4())), "settled and not billed"),
        (_lease(fee_units="2401", paid_units="9599"), "fee is above"),
        (_settle(11_999), "no receipt says the 11999"),
        (_hold(wallet=BOB), "another wallet, chain or contract"),
        (_hold(chain_id=1), "another wallet, chain or contract"),
        (_hold(contract=TOKEN), "another wallet, chain or contract"),
        (_hold(held_units="3000000"), "the contract's of 3000000"),
        (_hold(settled_units="11999"), "the hold says 11999"),
        (_hold(refunded_units="1"), "do not add up to the hold"),
        (_hold(state="open", refunded_units="0"), "the contract gave 0"),
        (_hold(leases=[]), "the leases settled 0"),
        (lambda bill: bill["escrow"]["leases"].append(bill["escrow"]["leases"][0]), "settled twice"),
        (lambda bill: bill.update(fee_usd_micros=1199), "the contract took 1200"),
        (lambda bill: bill.update(escrow=None), "does not say what the contract holds"),
        (lambda bill: bill.update(settlement={}), "ledger"),
    ],
)
def test_what_is_forged_about_the_contract_is_named(forge: Callable[[Bill], None], words: str) -> None:
    bill = true_bill()
    forge(bill)
    assert words in problem(bill)


def test_more_settled_than_charged_is_named() -> None:
    """The newer receipt exists, and by the rule of its ending only the first one is due."""
    bill = true_bill()
    line, due = bill["lines"][0], charge(RATE, 30_000)
    line |= {"billable_ms": 30_000, "charged_seq": 1, "charge_usd_micros": due, "refunded_usd_micros": due}
    bill |= {"total_usd_micros": due, "released_usd_micros": HELD - due}
    assert "more was settled than the 6000" in problem(bill)


def test_a_line_at_a_price_that_the_bill_does_not_list_is_named() -> None:
    """Half the price makes twice the tokens right, and the sums are made to fit: nothing else would find it."""
    bill, due = true_bill(), charge(RATE, CLAIMED_MS)
    tokens = {"rate_units_per_hour": RATE, "claimed_units": due, "charge_units": due, "refunded_units": 0}
    dollars = {"rate_usd_micros_per_hour": RATE // 2, "claimed_usd_micros": due // 2, "charge_usd_micros": due // 2}
    bill["lines"][0] |= {name: str(units) for name, units in tokens.items()} | dollars
    bill["lines"][0]["price"] = bill["price"] | {"usd_micros_per_token": "500000"}
    bill |= {"total_units": str(due), "total_usd_micros": due // 2}
    assert "is at a price of its own, and the bill lists no other" in problem(bill)


@pytest.mark.parametrize("party", ["provider", "customer"])
def test_receipts_for_nobodys_wallet_are_no_contracts(party: str) -> None:
    assert "names no wallet" in problem(true_bill(**{party: ZERO_ADDRESS}))
