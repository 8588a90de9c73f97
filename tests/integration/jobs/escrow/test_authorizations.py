"""What a wallet signed counts for one job, on its quote's terms, or not at all; a refusal writes nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from billing.account_kinds import AccountKind
from billing.chain import escrow
from billing.chain.errors import AuthorizationRefused
from billing.models import ChainTransaction, Commitment, EscrowHold
from billing.proofs.escrow import SignedHoldAuthorization
from jobs import lifecycle
from jobs.errors import AuthorizationMissing, AuthorizationUnexpected, QuoteForged, QuoteUsed, WalletShort
from jobs.models import Job, Quote
from jobs.quoting import quotes
from jobs.spec import canonical
from jobs.wire import QuoteView
from marketplace.accounts.models import Organisation
from marketplace.nodes.models import Node
from tests import stage
from tests.integration.billing.chain.town import Town
from tests.integration.billing.scenes import race
from tests.integration.jobs.api.api_clients import client_of, post
from tests.integration.jobs.escrow import scenes
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


def submit(alice: Organisation, view: QuoteView, signed: SignedHoldAuthorization | None, **changes: Any) -> Job:
    assert view.quote_id is not None
    return lifecycle.submit(
        organisation=alice,
        user=None,
        spec=scenes.spec(**changes),
        quote_id=view.quote_id,
        authorization=signed,
    )


def test_a_quote_says_what_the_wallet_has_to_sign(town: Town, alice: Organisation, bob: Node) -> None:
    view = scenes.quote(alice)
    terms = view.escrow
    assert terms is not None and view.balance_units is None
    assert (terms.job_id, terms.contract, terms.token) == (view.quote_id, town.contract.address, town.token)
    assert terms.rate_ceiling_units_per_hour == 3 * 2 * DOLLAR  # three times the price, of two devices
    assert (terms.challenge_seconds, terms.grace_seconds, terms.fee_bps) == (0, 60, 1000)
    assert terms.deadline_min < terms.deadline_max
    later = scenes.quote(alice, budget={"max_total": "2.00", "deadline": "20h"}).escrow
    assert later is not None and later.deadline_min - terms.deadline_min > 18 * 3600


def test_every_wrong_word_is_refused_and_nothing_is_written(town: Town, alice: Organisation, bob: Node) -> None:
    view = scenes.quote(alice)
    terms = view.escrow
    assert terms is not None and view.cap_units is not None
    lies: list[tuple[dict[str, Any], str]] = [
        ({"job_id": uuid4()}, "it is for the job"),
        ({"max_amount": view.cap_units - 1}, "the quote's cap"),
        ({"max_amount": view.cap_units + 1}, "the quote's cap"),
        ({"rate_ceiling_per_hour": terms.rate_ceiling_units_per_hour - 1}, "below the quote's"),
        ({"deadline": terms.deadline_min - 1}, "deadline"),
        ({"deadline": terms.deadline_max + 1}, "deadline"),
        ({"providers_root": "0x" + "11" * 32}, "root of providers is not that of the providers"),
        ({"providers": [town.key("Mallory").address]}, "none of the quote's providers"),
        ({"providers": []}, "any could be paid"),
        ({"parallel_leases": 2, "signer": "Mallory"}, "not signed"),
        ({"asset": "0x" + "22" * 20}, "token"),
        ({"signer": "Mallory"}, "not signed"),
    ]
    for changes, words in lies:
        with pytest.raises(AuthorizationRefused, match=words):
            submit(alice, view, scenes.sign(town, view, **changes))
    with pytest.raises(AuthorizationMissing):
        submit(alice, view, None)
    for empty in (Job, EscrowHold, Commitment, ChainTransaction.objects.filter(purpose="openHold")):
        assert not getattr(empty, "objects", empty).exists()
    assert submit(alice, view, scenes.sign(town, view, deadline=terms.deadline_min)).id == view.quote_id
    dollars = stage.spec_of()
    paid = quotes.make_quote(dollars, alice)
    with pytest.raises(AuthorizationUnexpected):
        lifecycle.submit(
            organisation=alice,
            user=None,
            spec=dollars,
            quote_id=paid.quote_id,
            authorization=scenes.sign(town, view),
        )


def test_one_word_is_good_for_one_job(town: Town, alice: Organisation, bob: Node) -> None:
    """Mallory's organisation, another quote, the same quote again: none makes a second job of it."""
    view, other = scenes.quote(alice), scenes.quote(alice)
    signed = scenes.sign(town, view)
    job = submit(alice, view, signed)
    with pytest.raises(QuoteUsed):
        submit(alice, view, signed)
    with pytest.raises(AuthorizationRefused):
        submit(alice, other, signed)
    same = scenes.sign(town, other, nonce=signed.authorization.nonce)  # a nonce again: the contract refuses
    late = submit(alice, other, same)
    scenes.rebroadcast(town)
    late.refresh_from_db()
    assert (late.state, EscrowHold.objects.get(pk=job.pk).state) == ("failed", "open")
    town.assert_books_match()


def test_one_key_makes_one_job_and_two_at_once_too(town: Town, alice: Organisation, bob: Node) -> None:
    view = scenes.quote(alice)
    body = {
        "spec": canonical(scenes.spec()),
        "quote_id": str(view.quote_id),
        "authorization": scenes.sign(town, view).model_dump(mode="json"),
    }
    client = client_of(alice)
    answers = [post(client, "/jobs", body, key="once") for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    assert {each.json()["job_id"] for each in answers} == {str(view.quote_id)}
    assert answers[0].json()["payment_mode"] == "escrow"
    assert post(client, "/jobs", {**body, "authorization": None}).status_code == 409  # the quote is used
    second = scenes.quote(alice)
    signed = scenes.sign(town, second)
    made = race([lambda: submit(alice, second, signed) for _ in range(4)])
    assert sum(isinstance(each, Job) for each in made) == 1, made
    assert EscrowHold.objects.count() == Job.objects.count() == 2


def test_a_wallet_with_too_little_is_refused_with_what_it_lacks(town: Town, alice: Organisation, bob: Node) -> None:
    big = {"budget": {"max_total": "8.00"}}
    view = scenes.quote(alice, **big)
    submit(alice, view, scenes.sign(town, view), **big)
    again = scenes.quote(alice, **big)  # ten were there, and eight are on their way into a hold
    with pytest.raises(WalletShort) as refused:
        submit(alice, again, scenes.sign(town, again), **big)
    assert refused.value.details["missing"] == "6 TUSD"
    assert "souk escrow deposit" in str(refused.value)
    mallory = town.key("Mallory").address
    with pytest.raises(WalletShort):
        submit(alice, again, scenes.sign(town, again, signer="Mallory", customer=mallory), **big)


def test_who_opened_her_hold_herself_needs_the_money_once(town: Town, alice: Organisation, bob: Node) -> None:
    view = scenes.quote(alice)
    signed = scenes.sign(town, view)
    assert view.cap_units is not None
    town.call("Alice", "withdraw", 10 * DOLLAR - view.cap_units)
    town.call("Alice", "openHold", escrow._struct(signed.authorization), signed.signature)
    town.follow(2)
    assert town.owed(AccountKind.WALLET_AVAILABLE, "Alice") == 0
    job = submit(alice, view, signed)
    assert len(stage.place(job)) == 1
    other = scenes.quote(alice)
    with pytest.raises(WalletShort):  # the hold is another job's
        submit(alice, other, scenes.sign(town, other))
    town.assert_books_match()


def test_the_mode_is_under_the_quotes_signature(town: Town, alice: Organisation, bob: Node) -> None:
    view = scenes.quote(alice)
    quote = Quote.objects.get(pk=str(view.quote_id))
    quote.spec["payment"]["mode"] = "credits"
    quote.save(update_fields=["spec"])
    with pytest.raises(QuoteForged):
        submit(alice, view, scenes.sign(town, view))


def test_a_wallet_written_in_small_letters_is_the_same(town: Town, alice: Organisation, bob: Node) -> None:
    view = scenes.quote(alice)
    job = submit(alice, view, scenes.sign(town, view, customer=town.key("Alice").address.lower()))
    town.follow(2)
    assert len(stage.place(job)) == 1


def test_nodes_without_a_wallet_that_the_contract_knows_are_left_out(town: Town, alice: Organisation) -> None:
    node = scenes.node("nobodys-node")
    view = quotes.make_quote(scenes.spec(), alice)
    assert view.quote_id is None and view.escrow is None
    [exclusion] = view.plan.exclusions
    assert (exclusion.code, exclusion.nodes) == ("wallet", 1)
    assert exclusion.message == "1 whose provider has no wallet for TUSD that the contract knows"
    scenes.delegate(town, node)
    assert quotes.make_quote(scenes.spec(), alice).quote_id is None  # planned is not final
    town.follow(2)
    assert quotes.make_quote(scenes.spec(), alice).quote_id is not None
    job = scenes.submit(town, alice)
    town.call("Bob", "revokeReceiptKey", node.receipt_address)
    town.follow(2)
    assert stage.place(job) == []
    town.assert_books_match()
