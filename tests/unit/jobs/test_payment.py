"""A locked price: exact in integers, rounded up where it covers and down where it charges; dollars need none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.matching.demand_from_spec import demand_of
from jobs.payment.terms import USD_MICROS_PER_DOLLAR, Payment
from jobs.spec import SpecErrors, canonical, from_wire, parse, spec_hash

SPEC = {"kind": "train", "name": "tiny", "budget": {"max_total": "2.00"}, "command": "true"}
amounts = st.integers(0, 10**18)
payments = st.builds(
    Payment, asset=st.just("WETH"), scale=st.integers(0, 36), usd_micros_per_token=st.integers(1, 10**24)
)


@given(amounts)
def test_dollars_are_their_own_units(usd_micros: int) -> None:
    dollars = Payment()
    assert (
        dollars.units_up(usd_micros) == dollars.units_down(usd_micros) == dollars.usd_micros(usd_micros) == usd_micros
    )


@given(payments, amounts)
def test_what_is_held_covers_and_what_is_charged_never_exceeds(payment: Payment, usd_micros: int) -> None:
    down, up = payment.units_down(usd_micros), payment.units_up(usd_micros)
    assert 0 <= up - down <= 1
    assert down * payment.usd_micros_per_token <= usd_micros * 10**payment.scale <= up * payment.usd_micros_per_token
    assert payment.usd_micros(down) <= usd_micros


@given(payments, st.lists(st.integers(1, 10**12), min_size=1, max_size=8), amounts)
def test_the_shares_of_a_gang_never_exceed_what_is_held(payment: Payment, rates: list[int], cap: int) -> None:
    held = payment.units_up(cap)
    assert sum(held * rate // sum(rates) for rate in rates) <= held
    assert sum(payment.units_down(rate) for rate in rates) <= payment.units_down(sum(rates))


@given(payments, st.integers(0, 2**256 - 1))
def test_amounts_are_shown_exactly(payment: Payment, units: int) -> None:
    number, code = payment.show(units).split(" ")
    whole, _, decimals = number.partition(".")
    assert (int(whole + decimals.ljust(payment.scale, "0")), code) == (units, "WETH")


def test_a_dollar_costs_a_dollar_and_no_price_is_nothing() -> None:
    assert Payment().show(2_500_000) == "$2.50"
    for wrong in ({"usd_micros_per_token": 2 * USD_MICROS_PER_DOLLAR}, {"scale": 2}, {"usd_micros_per_token": 0}):
        with pytest.raises(ValueError, match=r"price|dollar"):
            Payment(**wrong)


def test_the_asset_is_part_of_the_canonical_form_and_of_the_hash() -> None:
    plain, token = from_wire(SPEC), from_wire({**SPEC, "payment": {"asset": "TUSD"}})
    assert "payment" not in canonical(plain)
    assert canonical(token)["payment"] == {"asset": "TUSD", "mode": "credits"}
    assert from_wire(canonical(token)) == token
    assert len({spec_hash(spec) for spec in (plain, token, from_wire({**SPEC, "payment": {"asset": "WETH"}}))}) == 3
    assert spec_hash(from_wire({**SPEC, "payment": {"asset": "USD"}})) == spec_hash(plain)


@pytest.mark.parametrize(
    ("payment", "says"),
    [
        ("{asset: tusd!}", "line 4: payment.asset: 'tusd!' is not valid"),
        ("{aset: TUSD}", "line 4: payment.aset: unknown field; did you mean asset?"),
        ("{asset: TUSD, mode: escrw}", "did you mean escrow?"),
        ("{mode: escrow}", "is escrow, which holds tokens and no dollars"),
        ("TUSD", "line 4: payment: 'TUSD' is not valid (expected a mapping with asset and mode)"),
        ("{asset: 7}", "line 4: payment.asset: 7 is not valid"),
    ],
)
def test_a_mistake_in_it_is_named_with_its_line(payment: str, says: str) -> None:
    text = f"kind: train\nname: tiny\nbudget: {{max_total: 2}}\npayment: {payment}\ncommand: 'true'\n"
    with pytest.raises(SpecErrors) as found:
        parse(text)
    assert says in str(found.value)


def test_only_a_token_asks_for_an_agent_that_signs_for_tokens() -> None:
    assert not demand_of(from_wire(SPEC)).needs_token_receipts
    assert demand_of(from_wire({**SPEC, "payment": {"asset": "TUSD"}})).needs_token_receipts
