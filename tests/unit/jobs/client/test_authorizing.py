"""What a wallet signs for a job: it follows from the job file and the quote, or nothing is signed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.proofs.escrow import is_signed_by_customer, names_its_providers, providers_root
from jobs.client.errors import TermsRefused, UsageMistake
from jobs.client.views.plan import plan_view
from jobs.client.wallet import authorizing
from jobs.client.wallet.key_file import Wallet
from jobs.spec import Spec, parse, spec_hash
from jobs.wire import AssetView, EscrowTerms, Plan, QuoteView
from provider_agent.protocol import ReceiptDomain, ethereum

KEY = "0x" + "a1" * 32
WALLET = Wallet(ethereum.address_of(KEY), KEY)
CONTRACT, TOKEN = "0x" + "c0" * 20, "0x" + "70" * 20
BOB, BEN = "0x" + "b0" * 20, "0x" + "be" * 20
JOB_ID = UUID(int=7)
NOW = int(time.time())
DAY = 86_400
JOB_FILE = """\
kind: train
name: tiny
payment: {asset: TUSD, mode: escrow}
resources: {gpus: 2}
budget: {max_total: 2, max_per_gpu_hour: 0.50}
files: [train.py]
command: python input/train.py
"""

ASSET = AssetView(
    code="TUSD",
    scale=6,
    chain_id=31337,
    token=TOKEN,
    contract=CONTRACT,
    usd_micros_per_token=500_000,
    modes=["credits", "escrow"],
)
TERMS: dict[str, Any] = {
    "job_id": JOB_ID,
    "chain_id": 31337,
    "contract": CONTRACT,
    "token": TOKEN,
    "providers": [BOB, BEN],
    "rate_ceiling_units_per_hour": 2_000_000,  # 2 devices at 0.50 dollars, which is one token each
    "deadline_min": NOW + 7200,
    "deadline_max": NOW + 365 * DAY,
    "challenge_seconds": DAY,
    "grace_seconds": 3 * DAY,
    "fee_bps": 1000,
}


def spec() -> Spec:
    return parse(JOB_FILE)


def quote(terms: dict[str, Any] | None = None, **changes: Any) -> QuoteView:
    quoted: dict[str, Any] = {
        "quote_id": JOB_ID,
        "spec_hash": spec_hash(spec()),
        "plan": Plan(nodes_seen=1, candidates=[], exclusions=[], fixes=[], work_flops=None),
        "price_ceiling_usd_micros": 500_000,
        "expected_usd_micros": 100_000,
        "expected_seconds": 60.0,
        "cap_usd_micros": 2_000_000,
        "expires_at": datetime.now(UTC),
        "signature": "",
        "balance_usd_micros": 0,
        "asset": "TUSD",
        "usd_micros_per_token": 500_000,
        "price_observed_at": datetime.now(UTC),
        "cap_units": 4_000_000,
        "escrow": EscrowTerms(**(TERMS | (terms or {}))),
    }
    return QuoteView(**(quoted | changes))


def draw_up(terms: dict[str, Any] | None = None, *, until: int | None = None, **changes: Any) -> Any:
    return authorizing.draw_up(spec(), quote(terms, **changes), ASSET, WALLET.address, hold_until=until)


def test_what_is_signed_is_what_the_quote_says_and_nothing_more() -> None:
    authorization = draw_up()
    assert (authorization.job_id, authorization.customer, authorization.asset) == (JOB_ID, WALLET.address, TOKEN)
    assert (authorization.max_amount, authorization.rate_ceiling_per_hour) == (4_000_000, 2_000_000)
    assert authorization.deadline == TERMS["deadline_min"] + DAY
    signed = authorizing.sign(WALLET, authorization, quote())
    domain = ReceiptDomain(chain_id=31337, verifying_contract=CONTRACT)
    assert is_signed_by_customer(signed, domain)
    assert not is_signed_by_customer(signed, ReceiptDomain(chain_id=1, verifying_contract=CONTRACT))


def test_the_wallet_allows_the_quotes_providers_or_those_of_them_that_its_owner_names() -> None:
    assert draw_up().providers_root == providers_root([BOB, BEN])
    authorization = authorizing.draw_up(spec(), quote(), ASSET, WALLET.address, allow=[BEN])
    assert authorization.providers_root == providers_root([BEN])
    signed = authorizing.sign(WALLET, authorization, quote(), [BEN])
    assert (signed.providers, names_its_providers(signed)) == ((BEN,), True)
    with pytest.raises(UsageMistake, match=f"no node of that wallet .*{BOB}, {BEN}"):
        authorizing.draw_up(spec(), quote(), ASSET, WALLET.address, allow=[BEN, "0x" + "66" * 20])


def test_no_two_signatures_share_a_nonce_and_it_has_256_bits() -> None:
    nonces = {draw_up().nonce for _ in range(50)}
    assert len(nonces) == 50
    assert max(nonce.bit_length() for nonce in nonces) > 240


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"job_id": uuid4()}, "is not the quote's"),
        ({"chain_id": 1}, "are not those of"),
        ({"contract": "0x" + "66" * 20}, "are not those of"),
        ({"token": "0x" + "66" * 20}, "are not those of"),
        ({"rate_ceiling_units_per_hour": 2_000_001}, "the quote's price allows 2000000"),
        ({"rate_ceiling_units_per_hour": 0}, "a rate of 0"),
        ({"deadline_min": NOW - 10}, "in the past"),
        ({"deadline_max": NOW + 400 * DAY}, "further away"),
        ({"deadline_max": NOW + 7100}, "deadlines"),
        ({"fee_bps": 2001}, "basis points"),
        ({"providers": []}, "any could be paid"),
        ({"providers": [BOB, BOB]}, "providers are none"),
        ({"parallel_leases": 2}, "2 leases at a time, and the job file has 1"),
    ],
)
def test_terms_that_do_not_follow_from_the_quote_are_not_signed(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(TermsRefused, match=words):
        draw_up(terms)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cap_units": 4_000_001}, "it is 4000000"),
        ({"cap_usd_micros": 2_000_001, "cap_units": 4_000_002}, r"above budget\.max_total"),
        ({"cap_usd_micros": 0, "cap_units": 0}, "max_total"),
        ({"price_ceiling_usd_micros": 500_001}, "above max_per_gpu_hour"),
        ({"price_ceiling_usd_micros": None}, "max_per_gpu_hour"),
        ({"usd_micros_per_token": 0}, "price is none"),
        ({"asset": "USDC"}, "the quote is in USDC"),
        ({"asset_scale": 3}, "other units"),
        ({"spec_hash": "0" * 64}, "another job file, or .* update souk"),
        ({"escrow": None}, "does not offer"),
        ({"cap_units": None}, "does not offer"),
        ({"quote_id": None}, "does not offer"),
    ],
)
def test_a_quote_that_contradicts_the_job_file_or_itself_is_not_signed(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TermsRefused, match=words):
        draw_up(**changes)


def test_a_job_that_is_paid_from_a_balance_is_never_signed_for() -> None:
    from_balance = parse(JOB_FILE.replace(", mode: escrow", ""))
    with pytest.raises(TermsRefused, match="does not ask"):
        authorizing.draw_up(from_balance, quote(spec_hash=spec_hash(from_balance)), ASSET, WALLET.address)


def test_a_deadline_of_ones_own_lies_within_the_quotes_bounds() -> None:
    assert draw_up(until=NOW + 3 * DAY).deadline == NOW + 3 * DAY
    for moment in (NOW + 60, NOW + 366 * DAY):
        with pytest.raises(UsageMistake, match=r"at least [0-9.]+ h"):
            draw_up(until=moment)


@pytest.mark.parametrize("text", ["soon", "2", "2026-13-01", "2026-12-01", "-2d", ""])
def test_what_is_no_time_is_no_deadline(text: str) -> None:
    with pytest.raises(UsageMistake, match="neither a duration"):
        authorizing.parse_until(text)


def test_a_deadline_is_a_duration_or_a_time() -> None:
    assert abs(authorizing.parse_until("2d") - (time.time() + 2 * DAY)) < 5
    assert authorizing.parse_until("2027-01-01T00:00+00:00") == 1_798_761_600


def test_the_plan_says_what_the_wallet_will_be_asked_for() -> None:
    from rich.console import Console

    with (console := Console(width=200)).capture() as shown:
        console.print(plan_view(quote()))
    for words in ("at most 4 TUSD", "your own wallet", CONTRACT, "chain 31337", "Fee 10 %", "contested for 1d", "3d"):
        assert words in shown.get(), words
    assert "Your balance" not in shown.get()
