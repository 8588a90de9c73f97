"""A job paid in a token: priced once, held, metered, settled and paid in it, to the last base unit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from billing import prices
from billing.account_kinds import AccountKind
from billing.books import deposits
from billing.books.balances import balance
from billing.errors import PriceUnavailable, ReceiptForeign, ReceiptSignatureInvalid
from billing.models import Asset, Hold, ReceiptEvidence, Settlement
from billing.rails.registry import source_of
from jobs import lifecycle
from jobs.errors import AssetTooCoarse, NoEscrowContract, NotEnoughMoney, QuoteForged, UnknownAsset
from jobs.models import Lease, Quote
from jobs.quoting import quotes
from jobs.running import assignments, receipts
from jobs.spec import SpecErrors
from marketplace.accounts.models import Organisation
from marketplace.foundation import signing
from marketplace.nodes.models import Node
from provider_agent.protocol import (
    NO_CONTRACT,
    PaymentTerms,
    Reason,
    ReceiptDomain,
    SignedReceipt,
    charge,
    recover_receipt_signer,
    sign_receipt,
    verify_assignment,
)
from tests import stage
from tests.integration.billing.scenes import assert_ledger_is_true
from tests.integration.jobs.api.api_clients import client_of, post
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)

WETH_PRICE = 3_123_456_789  # micro-USD: $3,123.456789
IN_WETH = {"payment": {"asset": "WETH"}}


@pytest.fixture
def weth(transactional_db: None) -> Asset:
    asset = Asset.objects.create(
        id=7, code="WETH", scale=18, kind=Asset.Kind.ERC20, chain_id=31337, contract="0x" + "ab" * 20
    )
    prices.set_price(asset.pk, WETH_PRICE, actor="operator")
    return asset


@pytest.fixture
def alice(weth: Asset) -> Organisation:
    alice = stage.organisation("alice", usd_micros=50 * DOLLAR)
    deposits.credit(
        alice.id, 10**18, reference=f"31337:{uuid4()}:0", actor="chain", source=source_of("chain"), asset_id=weth.pk
    )
    return alice


@pytest.fixture
def bob(transactional_db: None) -> Node:
    bob = stage.node("bobs-node")
    Node.objects.filter(pk=bob.pk).update(facts={"has_token_receipts": True})
    return bob


@pytest.fixture
def lease(alice: Organisation, bob: Node) -> Lease:
    _, (lease,) = stage.running_job(alice, **IN_WETH)
    return Lease.objects.select_related("attempt__job", "node", "asset").get(pk=lease.pk)


def has(alice: Organisation, kind: AccountKind = AccountKind.CUSTOMER_AVAILABLE, *, asset: int = 7) -> int:
    return balance(alice.id, kind, asset_id=asset)


def test_a_quote_locks_the_price_with_its_source_and_time(alice: Organisation, bob: Node, weth: Asset) -> None:
    view = quotes.make_quote(stage.spec_of(**IN_WETH), alice)
    assert (view.asset, view.asset_scale, view.usd_micros_per_token) == ("WETH", 18, WETH_PRICE)
    assert view.price_source == "operator" and view.price_observed_at is not None
    assert view.cap_units == -(-2 * DOLLAR * 10**18 // WETH_PRICE)  # rounded up: it covers two dollars
    assert view.balance_units == 10**18
    prices.set_price(weth.pk, WETH_PRICE * 2, actor="operator")
    job = lifecycle.submit(organisation=alice, user=None, spec=stage.spec_of(**IN_WETH), quote_id=view.quote_id)
    stage.place(job)
    assert Hold.objects.get(job_id=job.id).amount == view.cap_units


@pytest.mark.parametrize("field", ["usd_micros_per_token", "price_source", "price_observed_at", "asset_id"])
def test_no_part_of_the_price_can_be_changed_in_a_quote(
    alice: Organisation, bob: Node, weth: Asset, field: str
) -> None:
    other = Asset.objects.create(id=8, code="TUSD", scale=6, kind="erc20", chain_id=31337, contract="0x" + "cd" * 20)
    spec = stage.spec_of(**IN_WETH)
    quote_id = stage.quote(alice, spec)
    quote = Quote.objects.get(pk=quote_id)
    values = {
        "usd_micros_per_token": WETH_PRICE * 2,
        "price_source": "feeds",
        "price_observed_at": quote.created_at - timedelta(days=1),
        "asset_id": other.pk,
    }
    Quote.objects.filter(pk=quote_id).update(**{field: values[field]})
    with pytest.raises(QuoteForged):
        lifecycle.submit(organisation=alice, user=None, spec=spec, quote_id=quote_id)


def test_a_marketplace_without_any_money_yet_quotes_in_dollars(transactional_db: None) -> None:
    stage.node("bobs-node")
    assert quotes.make_quote(stage.spec_of(), stage.organisation("alice")).quote_id is not None


def test_a_quote_in_dollars_is_signed_as_before_tokens(alice: Organisation, bob: Node) -> None:
    quote = Quote.objects.get(pk=stage.quote(alice))
    assert b"payment" not in quotes.quote_bytes(quote)


def test_a_job_in_a_token_is_paid_to_the_last_unit(alice: Organisation, bob: Node, lease: Lease) -> None:
    rate = 2 * DOLLAR * 10**18 // WETH_PRICE
    cap = -(-2 * DOLLAR * 10**18 // WETH_PRICE)
    assert (lease.rate_units_per_hour, lease.cap_units) == (rate, cap)
    assert (has(alice), has(alice, AccountKind.JOB_HOLD)) == (10**18 - cap, cap)
    assert has(alice, asset=1) == 50 * DOLLAR  # not a dollar is touched
    stage.see_running(lease, seconds=1234)
    stage.bill(lease, ms=1_234_567)
    stage.finish(lease)
    lease.refresh_from_db()
    due = charge(rate, 1_234_567)
    assert (lease.charge_units, lease.charge_usd_micros) == (due, charge(2 * DOLLAR, 1_234_567))
    settled = Settlement.objects.get(job_id=lease.attempt.job_id)
    assert (settled.held, settled.charged, settled.refunded) == (cap, due, cap - due)
    assert has(alice) == 10**18 - due
    assert balance(bob.provider.organisation_id, AccountKind.PROVIDER_PENDING, asset_id=7) == due - due // 10
    assert balance(None, AccountKind.FEE_REVENUE, asset_id=7) == due // 10
    assert has(alice, AccountKind.JOB_HOLD) == 0
    assert_ledger_is_true()


def test_the_assignment_carries_the_terms_and_dollars_carry_none(alice: Organisation, bob: Node, lease: Lease) -> None:
    signed = assignments.make_assignment(lease)
    assignment = verify_assignment(signing.server_public_key_hex(), signed)
    assert assignment.payment == PaymentTerms(
        asset="WETH",
        token="0x" + "ab" * 20,
        chain_id=31337,
        rate_per_hour=lease.rate_units_per_hour,
        cap=lease.cap_units,
    )
    assert (assignment.rate_per_hour, assignment.cap) == (lease.rate_units_per_hour, lease.cap_units)
    lifecycle.cancel(lease.attempt.job_id, actor="alice")
    stage.finish(lease, reason=Reason.CANCELLED_BY_CUSTOMER)
    _, (in_dollars,) = stage.running_job(alice)
    assert '"payment"' not in assignments.make_assignment(in_dollars).payload


def test_a_node_with_an_older_agent_takes_dollars_and_no_tokens(alice: Organisation, bob: Node) -> None:
    Node.objects.filter(pk=bob.pk).update(facts={})
    view = quotes.make_quote(stage.spec_of(**IN_WETH), alice)
    assert view.quote_id is None
    assert [each.code for each in view.plan.exclusions] == ["old_agent"]
    assert quotes.make_quote(stage.spec_of(), alice).quote_id is not None


@pytest.mark.parametrize(
    "domain",
    [NO_CONTRACT, ReceiptDomain(chain_id=1), ReceiptDomain(chain_id=31337, verifying_contract="0x" + "1" * 40)],
)
def test_a_receipt_for_another_chain_or_contract_is_refused(lease: Lease, domain: ReceiptDomain) -> None:
    stage.see_running(lease, seconds=100)
    good = stage.receipt(lease, ms=1000)
    fresh = Lease.objects.select_related("attempt", "node").get(pk=lease.pk)
    forged = sign_receipt(stage.receipt_key(lease.node.name), good.receipt, domain)
    with pytest.raises(ReceiptSignatureInvalid):
        receipts.accept(fresh, [forged])
    assert receipts.accept(fresh, [good]) == 1


def test_a_receipt_for_another_token_or_party_is_refused(lease: Lease) -> None:
    stage.see_running(lease, seconds=100)
    fresh = Lease.objects.select_related("attempt", "node").get(pk=lease.pk)
    terms = fresh.payment_terms
    assert terms is not None
    for field in ("provider", "customer", "asset"):
        body = stage.receipt(lease, ms=1000).receipt.model_copy(update={field: "0x" + "9" * 40})
        with pytest.raises(ReceiptForeign):
            receipts.accept(fresh, [sign_receipt(stage.receipt_key(lease.node.name), body, terms.domain)])


def test_evidence_of_a_lie_names_the_domain_that_proves_it(lease: Lease) -> None:
    stage.see_running(lease, seconds=100)
    stage.bill(lease, ms=1000)
    fresh = Lease.objects.select_related("attempt", "node").get(pk=lease.pk)
    lie = stage.receipt(lease, ms=2000, seq=1)
    with pytest.raises(Exception, match="two different receipts"):
        receipts.accept(fresh, [lie])
    [kept] = ReceiptEvidence.objects.filter(lease_id=lease.pk)
    domain = ReceiptDomain(chain_id=kept.chain_id, verifying_contract=kept.contract)
    for receipt in (kept.accepted, kept.other):
        assert recover_receipt_signer(SignedReceipt.model_validate(receipt), domain) == lease.node.receipt_address


def test_too_little_of_the_token_is_refused_whatever_lies_in_dollars(
    alice: Organisation, bob: Node, weth: Asset
) -> None:
    prices.set_price(weth.pk, 1_000_000, actor="operator")  # 1 WETH is now one dollar, and two are to be held
    with pytest.raises(NotEnoughMoney) as refused:
        stage.submit(alice, stage.spec_of(**IN_WETH))
    assert refused.value.details["asset"] == "WETH"
    assert refused.value.details["missing"] == "1 WETH"
    assert (refused.value.details["missing_units"], refused.value.details["missing_usd_micros"]) == (
        str(10**18),
        DOLLAR,
    )


def test_a_cap_is_raised_at_the_locked_price(alice: Organisation, bob: Node, weth: Asset, lease: Lease) -> None:
    stage.see_running(lease, seconds=3600)
    stage.bill(lease, ms=3_600_000)
    stage.finish(lease, reason=Reason.BUDGET_EXHAUSTED)
    prices.set_price(weth.pk, WETH_PRICE // 2, actor="operator")
    lifecycle.resume(lease.attempt.job_id, cap_usd_micros=5 * DOLLAR, actor="alice")
    assert Hold.objects.get(job_id=lease.attempt.job_id).amount == -(-5 * DOLLAR * 10**18 // WETH_PRICE)


def test_an_unknown_asset_is_named_with_the_nearest(alice: Organisation, bob: Node) -> None:
    answer = post(client_of(alice), "/quotes", {"spec": {**stage.TRAIN, "payment": {"asset": "WEHT"}}})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_asset")
    [error] = answer.json()["details"]["errors"]
    assert (error["path"], error["nearest"], error["expected"]) == ("payment.asset", "WETH", "one of USD, WETH")
    with pytest.raises(UnknownAsset, match="did you mean WETH"):
        quotes.make_quote(stage.spec_of(payment={"asset": "WEHT"}), alice)


def test_escrow_without_a_contract_is_refused_and_says_so(alice: Organisation, bob: Node) -> None:
    with pytest.raises(NoEscrowContract, match="no escrow contract for WETH"):
        quotes.make_quote(stage.spec_of(payment={"asset": "WETH", "mode": "escrow"}), alice)
    with pytest.raises(SpecErrors, match="holds tokens and no dollars"):
        stage.spec_of(payment={"mode": "escrow"})


def test_a_token_without_a_price_quotes_nothing(alice: Organisation, bob: Node) -> None:
    Asset.objects.create(id=9, code="NOPE", scale=18, kind="erc20", chain_id=31337, contract="0x" + "ef" * 20)
    with pytest.raises(PriceUnavailable):
        quotes.make_quote(stage.spec_of(payment={"asset": "NOPE"}), alice)


def test_a_token_too_coarse_for_the_price_is_refused(alice: Organisation, bob: Node) -> None:
    Asset.objects.create(id=9, code="GOLD", scale=2, kind="erc20", chain_id=31337, contract="0x" + "ef" * 20)
    prices.set_price(9, 2_000_000_000, actor="operator")  # a base unit is $20, an hour costs one
    with pytest.raises(AssetTooCoarse, match="GOLD cannot pay"):
        quotes.make_quote(stage.spec_of(payment={"asset": "GOLD"}), alice)


@pytest.mark.parametrize(
    "change",
    [
        {"charge_units": 10**30},
        {"payment": {}},
        {"asset_id": 1},
    ],
)
def test_the_database_refuses_a_lease_whose_money_makes_no_sense(lease: Lease, change: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Lease.objects.filter(pk=lease.pk).update(**change)


def test_the_database_holds_a_lease_in_dollars_to_its_dollars(alice: Organisation, bob: Node) -> None:
    _, (lease,) = stage.running_job(alice)
    assert (lease.rate_units_per_hour, lease.cap_units) == (lease.rate_usd_micros_per_hour, lease.cap_usd_micros)
    for change in ({"rate_units_per_hour": 1}, {"cap_units": 1}, {"charge_units": 1}, {"charge_usd_micros": 1}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Lease.objects.filter(pk=lease.pk).update(**change)


def test_the_balance_shows_every_token_beside_the_dollars(alice: Organisation, bob: Node, lease: Lease) -> None:
    body = client_of(alice).get("/api/v1/balance").json()
    assert body["available_usd_micros"] == 50 * DOLLAR
    dollars, weth = body["assets"]
    assert dollars["asset"] == "USD"
    held = -(-2 * DOLLAR * 10**18 // WETH_PRICE)
    assert (weth["asset"], weth["scale"]) == ("WETH", 18)
    assert (weth["available"], weth["held"]) == (str(10**18 - held), str(held))
    assert [each["asset"] for each in client_of(bob.provider.organisation).get("/api/v1/balance").json()["assets"]] == [
        "USD"
    ]
