"""A true bill verifies; whatever Mallory forges in it is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.client.verify.bill import verify_bill
from jobs.client.verify.export import verify_export
from jobs.wire import BillView
from provider_agent.protocol import ZERO_HASH
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.dollar_bills import JOB, MALLORY, RATE, Bill, line, receipts, true_bill
from tests.unit.jobs.client.fake_answers import signed_export
from tests.unit.jobs.client.fake_server import FakeMarketplace


def test_true_bill_verifies() -> None:
    found = verify_bill(BillView.model_validate(true_bill()))
    assert found.problem is None
    assert (found.receipts, found.lines) == (5, 3)


def _change_receipt(index: int, **changes: Any) -> Callable[[Bill], None]:
    def forge(bill: Bill) -> None:
        bill["lines"][0]["receipts"][index]["receipt"] |= changes

    return forge


def _change_line(**changes: Any) -> Callable[[Bill], None]:
    return lambda bill: bill["lines"][0].update(changes)


def _change(**changes: Any) -> Callable[[Bill], None]:
    return lambda bill: bill.update(changes)


def _drop_receipt(index: int) -> Callable[[Bill], None]:
    return lambda bill: bill["lines"][0]["receipts"].pop(index)


def _sign_as_mallory(bill: Bill) -> None:
    row = bill["lines"][0]
    row["receipts"] = receipts(UUID(row["lease_id"]), [20_000, 45_123, 60_001], key=MALLORY)


def _sign_for_another_rate(bill: Bill) -> None:
    row = bill["lines"][0]
    row["receipts"] = receipts(UUID(row["lease_id"]), [20_000, 45_123, 60_001], rate=RATE * 2)


def _turn_the_meter_back(bill: Bill) -> None:
    row = bill["lines"][0]
    row["receipts"] = receipts(UUID(row["lease_id"]), [60_001, 45_123, 60_001])


def _use_receipts_of_another_lease(bill: Bill) -> None:
    bill["lines"][1]["receipts"] = bill["lines"][0]["receipts"]


def _bill_twice(bill: Bill) -> None:
    bill["lines"].append(bill["lines"][0])


def _swap_receipts(bill: Bill) -> None:
    chain = bill["lines"][0]["receipts"]
    chain[0], chain[1] = chain[1], chain[0]


def _swap_signatures(bill: Bill) -> None:
    chain = bill["lines"][0]["receipts"]
    chain[0]["signature"], chain[1]["signature"] = chain[1]["signature"], chain[0]["signature"]


PRICE = {
    "usd_micros_per_token": "1000000",
    "source": "test",
    "observed_at": None,
    "locked_at": "2026-11-01T00:00:00Z",
    "reason": "quoted",
}
FORGERIES: list[tuple[str, Callable[[Bill], Any], str]] = [
    ("more time in a receipt", _change_receipt(0, billable_ms=21_000), "signed by"),
    ("more money in a receipt", _change_receipt(2, cumulative_amount=99_999), "signed by"),
    ("another job in a receipt", _change_receipt(0, job_id=str(uuid4())), "another job or lease"),
    ("a missing receipt", _drop_receipt(1), "has sequence 3"),
    ("a missing first receipt", _drop_receipt(0), "has sequence 2"),
    ("a missing last receipt", _drop_receipt(2), "another claim than its newest receipt"),
    ("swapped receipts", _swap_receipts, "has sequence 2"),
    ("swapped signatures", _swap_signatures, "signed by"),
    ("a broken chain", _change_receipt(1, prev_digest=ZERO_HASH), "chain of digests is broken"),
    ("a changed receipt below a true one", _change_receipt(0, meter_hash="0x" + "1" * 64), "signed by"),
    (
        "no signature at all",
        lambda bill: bill["lines"][0]["receipts"][0].update(signature="0x" + "0" * 130),
        "no valid",
    ),
    ("another key", _sign_as_mallory, f"signed by {MALLORY.address}"),
    ("another rate", _sign_for_another_rate, "where rate x time is"),
    ("a meter that turns back", _turn_the_meter_back, "claims less time than an earlier one"),
    ("receipts of another lease", _use_receipts_of_another_lease, "another job or lease"),
    ("a lease twice", _bill_twice, "billed twice"),
    ("a claim without receipts", _change_line(receipts=[]), "another claim"),
    ("a higher claim", _change_line(claimed_usd_micros=999_999), "another claim"),
    ("more time than claimed", _change_line(billable_ms=60_002), "where the receipts claim"),
    ("a higher charge", _change_line(charge_usd_micros=9_001), "more than its rate x billed time"),
    ("a negative charge", _change_line(charge_usd_micros=-1), "more than its rate x billed time"),
    ("a smaller refund", _change_line(refunded_usd_micros=0), "refunds something else"),
    ("a higher total", _change(total_usd_micros=99_999), "add up to"),
    ("a fee above the total", _change(fee_usd_micros=99_999), "not a part of the total"),
    ("less given back", _change(released_usd_micros=1), "do not add up to the hold"),
    ("prices of dollars", _change(prices=[PRICE]), "in dollars, which have no price"),
]


@pytest.mark.parametrize(("forge", "problem"), [row[1:] for row in FORGERIES], ids=[row[0] for row in FORGERIES])
def test_forged_bill_is_named(forge: Callable[[Bill], Any], problem: str) -> None:
    bill = true_bill()
    forge(bill)
    found = verify_bill(BillView.model_validate(bill))
    assert found.problem is not None
    assert problem in str(found.problem)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=4).map(sorted), st.data())
def test_no_number_of_a_true_bill_can_be_raised(milliseconds: list[int], data: st.DataObject) -> None:
    row = line(milliseconds)
    total = row["charge_usd_micros"]
    bill = true_bill() | {"lines": [row], "total_usd_micros": total, "fee_usd_micros": 0, "is_final": False}
    assert verify_bill(BillView.model_validate(bill)).problem is None
    name = data.draw(st.sampled_from([name for name in row if name.endswith(("_ms", "_usd_micros"))]))
    if name != "observed_ms":  # what the server saw is reported, not signed
        row[name] += data.draw(st.integers(1, 10**6))
        assert verify_bill(BillView.model_validate(bill)).problem is not None


def test_bill_says_verified(run: Run, market: FakeMarketplace, tmp_path: Path) -> None:
    market.bill = true_bill()
    market.job["job_id"] = str(JOB)
    ended = run("bill", JOB, "--export", tmp_path / "bill.json")
    assert ended.status == 0
    assert "verified: 5 signed receipts" in ended.out
    exported = verify_export(json.loads((tmp_path / "bill.json").read_text()))
    assert exported.verification.problem is None
    assert run("bill", JOB, "--json").json["verified"] is True


def test_bill_that_does_not_verify_has_its_own_exit_status(run: Run, market: FakeMarketplace) -> None:
    market.bill = true_bill() | {"total_usd_micros": 5}
    market.job["job_id"] = str(JOB)
    ended = run("bill", JOB)
    assert (ended.status, "DOES NOT VERIFY" in ended.out, "the lines add up to" in ended.err) == (10, True, True)
    machine = run("bill", JOB, "--json")
    assert (machine.status, machine.json["error"]["code"]) == (10, "bill_does_not_verify")
    assert run("bill", JOB, "--no-verify").status == 0


def test_bill_of_another_job_is_refused(run: Run, market: FakeMarketplace) -> None:
    market.bill = json.loads(json.dumps(true_bill()))
    assert run("bill", market.job_id).status == 10


def test_an_exported_bill_is_verified_without_a_server_or_a_key(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOUK_SERVER", "http://127.0.0.1:9")  # nobody is there
    monkeypatch.delenv("SOUK_API_KEY")
    file = tmp_path / "bill.json"
    document = signed_export("souk-bill-1", true_bill())
    file.write_text(json.dumps(document, indent=1))
    ended = run("bill", "--verify", file)
    assert (ended.status, "verified: 5 signed receipts" in ended.out) == (0, True)
    key = document["server_public_key"]
    printed = run("bill", "--verify", file, "--server-key", key, "--json").json
    assert (printed["verified"], printed["is_pinned"], printed["receipts"], printed["lines"]) == (True, True, 5, 3)
    assert run("provider", "earnings", "--verify", file, "--server-key", printed["server_key_sha256"]).status == 0
    other = run("bill", "--verify", file, "--server-key", "0" * 64)
    assert (other.status, "not by the one that you gave" in other.err) == (10, True)


def test_a_changed_file_has_the_exit_status_of_a_bill_that_does_not_verify(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bill.json"
    text = json.dumps(signed_export("souk-bill-1", true_bill()))
    file.write_text(text.replace('"hold_usd_micros": 2000000', '"hold_usd_micros": 2000001'))
    ended = run("bill", "--verify", file)
    assert (ended.status, "signature does not fit" in ended.err) == (10, True)
    machine = run("bill", "--verify", file, "--json")
    assert (machine.status, machine.json["error"]["code"]) == (10, "bill_does_not_verify")


def test_what_does_not_go_together_is_a_mistake_of_usage(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bill.json"
    assert run("bill").status == 2
    assert run("bill", "--verify", file).status == 2  # there is no such file
    file.write_text("not json")
    assert run("bill", "--verify", file).status == 2
    assert run("bill", "tiny", "--verify", file).status == 2
    assert run("bill", "tiny", "--server-key", "00").status == 2


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3).map(sorted), st.integers(1, 10**12))
def test_a_heartbeat_is_all_that_is_believed_beyond_what_was_seen(milliseconds: list[int], more: int) -> None:
    row = line(milliseconds) | {"is_ended": True, "charged_seq": len(milliseconds)}
    bill = true_bill() | {"lines": [row], "total_usd_micros": row["charge_usd_micros"], "fee_usd_micros": 0}
    bill |= {"is_final": False}
    row["observed_ms"] = max(0, milliseconds[-1] - 5000)
    assert verify_bill(BillView.model_validate(bill)).problem is None
    row["observed_ms"] = milliseconds[-1] - 5000 - more
    assert "marketplace saw" in str(verify_bill(BillView.model_validate(bill)).problem)
