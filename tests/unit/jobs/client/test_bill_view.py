"""The money on a bill is right: each asset by itself, in its own unit, and nothing shown before it is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.client.output import console
from jobs.client.verify.bill import verify_bill
from jobs.client.views.bill import bill_view
from jobs.wire import BillView
from tests.unit.jobs.client import dollar_bills as dollars
from tests.unit.jobs.client import token_bills as tokens
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import NOW, signed_export

FEE_BPS = 1_000


def shown(bill: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    view = BillView.model_validate(bill)
    verification = verify_bill(view)
    assert verification.problem is None
    console().print(bill_view(view, verification))
    return capsys.readouterr().out


def earned(bill: dict[str, Any], *, asset: str) -> dict[str, Any]:
    """The first line of a bill, as its provider sees it."""
    line = bill["lines"][0]
    fee = line["charge_usd_micros"] * FEE_BPS // 10_000
    paid = {"fee_bps": FEE_BPS, "fee_units": str(fee), "paid_units": str(line["charge_usd_micros"] - fee)}
    about = {"job_id": bill["job_id"], "asset": asset, "asset_scale": 6, "price": bill.get("price")}
    return line | paid | about | {"ended_at": NOW.isoformat(), "available_from": None}


def test_earnings_are_added_up_by_asset_each_in_its_own_unit(run: Run, tmp_path: Path) -> None:
    lines = [earned(dollars.true_bill(), asset="USD"), earned(tokens.true_bill(), asset="TUSD")]
    charged = [line["charge_usd_micros"] for line in lines]
    assert charged == [9_000, 12_000]
    body = {
        "provider_id": str(dollars.JOB),
        "since": "2026-11-01T00:00:00Z",
        "until": "2026-12-01T00:00:00Z",
        "lines": lines,
        "paid_units": {line["asset"]: line["paid_units"] for line in lines},
    }
    file = tmp_path / "earnings.json"
    file.write_text(json.dumps(signed_export("souk-earnings-1", body)))
    ended = run("provider", "earnings", "--verify", file)
    assert ended.status == 0, ended.err
    assert "2 lines adding up to 12000 base units of TUSD, 9000 micro-USD\n" in ended.out
    assert "21000" not in ended.out
    file.write_text(json.dumps(signed_export("souk-earnings-1", body | {"lines": [], "paid_units": {}})))
    assert "0 lines adding up to nothing\n" in run("provider", "earnings", "--verify", file).out


def test_a_bill_in_a_token_says_no_micro_dollars(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(tokens.true_bill(), capsys)
    assert (
        "2 signed receipts, the chain of each lease without a gap, 1 line adding up to 12000 base units of TUSD" in out
    )
    assert "(12000 base units of TUSD), of which the platform's fee is 0.0012 TUSD" in out
    assert "micro-USD" not in out and "1 lines" not in out


def test_one_receipt_over_one_base_unit_is_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    row = dollars.line([5])
    bill = dollars.true_bill() | {"lines": [row], "total_usd_micros": row["charge_usd_micros"], "fee_usd_micros": 0}
    bill |= {"released_usd_micros": 2_000_000 - row["charge_usd_micros"]}
    assert row["charge_usd_micros"] == 1
    assert (
        "verified: 1 signed receipt, the chain of each lease without a gap, 1 line adding up to 1 micro-USD"
        in shown(bill, capsys)
    )


def test_a_bill_of_a_contract_says_what_is_not_known_yet(capsys: pytest.CaptureFixture[str]) -> None:
    bill = tokens.true_bill() | {"is_final": False, "fee_usd_micros": 0, "released_usd_micros": 0}
    bill["escrow"] |= {"state": "open", "settled_units": "0", "refunded_units": "0", "leases": []}
    out = shown(bill, capsys)
    assert "(so far)" in out
    assert "the platform's fee is not known yet\n" in out
    assert "given back not known yet to wallet" in out


def test_the_fee_is_not_known_while_pay_can_still_be_contested(capsys: pytest.CaptureFixture[str]) -> None:
    bill = tokens.true_bill() | {"fee_usd_micros": 0}
    lease = bill["escrow"]["leases"][0]
    lease |= {"pending_units": lease["settled_units"], "paid_units": "0", "fee_units": "0"}
    out = shown(bill, capsys)
    assert "the platform's fee is not known yet\n" in out
    assert f"given back {(tokens.HELD - 12_000) / 10**6:g} TUSD" in out


def test_a_bill_of_a_running_job_in_dollars_says_what_is_not_known_yet(capsys: pytest.CaptureFixture[str]) -> None:
    bill = dollars.true_bill() | {"is_final": False, "fee_usd_micros": 0, "released_usd_micros": 0}
    out = shown(bill, capsys)
    assert "the platform's fee is not known yet\n" in out and "given back not known yet\n" in out


def test_a_bill_that_ended_says_nothing_where_nothing_is_due(capsys: pytest.CaptureFixture[str]) -> None:
    bill = dollars.true_bill() | {"lines": [], "total_usd_micros": 0, "fee_usd_micros": 0}
    out = shown(bill | {"released_usd_micros": 2_000_000}, capsys)
    assert "the platform's fee is $0" in out and "given back $2" in out and "not known" not in out
